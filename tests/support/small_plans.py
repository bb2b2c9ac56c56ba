"""Plans of a few steps, frozen in memory, for tests that run none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marin_rules import ExecutorStep, versioned
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.prepare import PlanSettings, prepare
from marin_rules.state.status import Status
from marin_rules.state.task_records import Layout, TaskPlace, TaskRecord, layout_path


def compute(config: Any) -> None:
    """The function of all steps; never called."""


def step(name: str, *below: ExecutorStep[Any], fn: Any = compute, **details: Any) -> ExecutorStep[Any]:
    """A step that depends on those `below`."""
    return ExecutorStep(name=name, fn=fn, config=[versioned(name), *(item / "x" for item in below)], **details)


def plan_of(folder: Path, *steps: ExecutorStep[Any], **choices: Any) -> FrozenPlan:
    """The plan of an experiment `x.py` in `folder`, with its prefix in `folder/out`."""
    settings = PlanSettings(prefix=str(folder / "out"), caller_path=str(folder / "x.py"), **choices)
    return prepare(steps, settings)


def leave_status(step: FrozenStep, status: Status) -> None:
    """Write a step's status as its worker would."""
    folder = Path(step.output_path)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".executor_status").write_text(status)


def leave_tasks(output_path: str, *statuses: Status | None) -> None:
    """Write the records of an array step's tasks, in their order; None for a task that has not begun."""
    layout = Layout(len(statuses), 1)
    for task, status in enumerate(statuses):
        place = TaskPlace(output_path, layout.round, task)
        Path(place.folder).mkdir(parents=True, exist_ok=True)
        if status is not None:
            Path(place.record_path).write_bytes(TaskRecord(status, {}).to_bytes())
            Path(place.log_path).write_text(f"task {task}\n")
    Path(layout_path(output_path)).write_bytes(layout.to_bytes())
