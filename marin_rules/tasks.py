"""Tasks: the parts of an array step, a step whose function is called once for each of them.

    ExecutorStep(name="clean", fn=remote(clean, tasks=64), config=CleanConfig(...))

    def clean(config: CleanConfig) -> None:
        for file in shards_of_this_task(glob(f"{config.input_path}/*.jsonl")):
            ...

`this_process()` says which task a process is. Pure: no I/O but the variables of the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from marin_rules.process import this_process

MOST_TASKS = 1_000_000
"""Of one step. Each has a record and a log; a number beyond that is a slip, or somebody's damaged file."""


def check_tasks(tasks: Any) -> None:
    """Refuse what is no number of tasks; None is fine, and means a step of one piece."""
    if tasks is None:
        return
    if isinstance(tasks, bool) or not isinstance(tasks, int):
        raise TypeError(f"tasks is {tasks!r}, not a whole number")
    if tasks < 1:
        raise ValueError(f"tasks is {tasks}: a function is called at least once. Leave it out for a step of one piece.")
    if tasks > MOST_TASKS:
        raise ValueError(f"tasks is {tasks}: a step has at most {MOST_TASKS}. Give each task several files.")


def shards_of_this_task[PathT: str | os.PathLike[str]](files: Iterable[PathT]) -> list[PathT]:
    """The files that are this task's to work on: all of them are dealt out, each to one task, as evenly as can be.

    In a step without tasks, and outside of steps, that is all of them. The files are sorted first, for two machines may
    list the same folder in different orders; give every task the same files.
    """
    process = this_process()
    return sorted(files, key=os.fspath)[process.task :: process.tasks]
