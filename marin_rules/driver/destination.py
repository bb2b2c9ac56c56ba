"""Where a local step runs, in a few words for the table of steps."""

from __future__ import annotations

from marin_rules.clusters.this_machine import lacking
from marin_rules.plans.frozen import FrozenPlan, FrozenStep


def destination_here(plan: FrozenPlan, step: FrozenStep) -> str | None:
    """Its tasks, what it asks for and this machine lacks, its software environment; None if there is nothing to say."""
    tasks = None if step.tasks is None else f"{step.tasks} tasks"
    missing = None if step.machines is None else lacking(step.machines)
    words = ", ".join(word for word in (tasks, missing) if word is not None)
    return with_environment(f"here: {words}" if words else None, plan, step)


def with_environment(where: str | None, plan: FrozenPlan, step: FrozenStep) -> str | None:
    """A destination, with the software environment that the step has there."""
    if step.software is None:
        return where
    return f"{where or 'here'}, environment {plan.software[step.software].name}"
