"""Tasks: the parts of an array step, a step whose function is called once for each of them.

    ExecutorStep(name="clean", fn=remote(clean, tasks=64), config=CleanConfig(...))

`this_process()` says which task a process is, and `shards_of_this_task` divides files among them.
"""

from __future__ import annotations

from typing import Any

MOST_TASKS = 1_000_000
"""The most tasks of one step. Each has a record and a log; a larger number is a typo, or a damaged file."""


def check_tasks(tasks: Any) -> None:
    """Refuse anything that is not a number of tasks; None is fine, and means an undivided step."""
    if tasks is None:
        return
    if isinstance(tasks, bool) or not isinstance(tasks, int):
        raise TypeError(f"tasks is {tasks!r}, not a whole number")
    if tasks < 1:
        raise ValueError(f"tasks is {tasks}: a function is called at least once. Leave it out for a step of one piece.")
    if tasks > MOST_TASKS:
        raise ValueError(f"tasks is {tasks}: a step has at most {MOST_TASKS}. Give each task several files.")
