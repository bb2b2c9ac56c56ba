"""What Snakemake is asked to make: a target for each step, and those of a whole run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from marin_rules.engine.names import SEPARATOR
from marin_rules.engine.plan_in_process import PlanInProcess
from marin_rules.plans.frozen import FrozenStep

_MILESTONES = 100
"""Python stops recursion after 1000 calls; Snakemake needs two per level, and some more to handle a file."""


class Targets:
    """The targets of the steps of one plan; each is made once."""

    def __init__(self, in_process: PlanInProcess, storage: Callable[..., Any]) -> None:
        self._in_process = in_process
        self._storage = storage
        self._made: dict[int, Any] = {}

    def of_rule(self, rule: str) -> Any:
        """The target of any of a rule's steps: the rule's output."""
        return self._storage(f"{{step}}{SEPARATOR}{rule}", retrieve=False)

    def of(self, index: int) -> Any:
        """The target of the step at a position in the plan."""
        target = self._made.get(index)
        if target is None:
            step = self._in_process.plan.steps[index]
            query = f"{step.key}{SEPARATOR}{self._in_process.rule(step)}"
            target = self._made[index] = self._storage(query, retrieve=False)
        return target

    def of_ends(self, steps: Sequence[FrozenStep]) -> list[Any]:
        """The targets for which Snakemake runs all these steps, found by recursion."""
        return [self.of(step.index) for step in ends(steps)]

    def of_all(self, steps: Sequence[FrozenStep]) -> list[Any]:
        """The same, with intermediate targets for the sake of long chains."""
        return [self.of(step.index) for step in (*milestones(steps), *ends(steps))]

    def hold_folders(self, steps: Iterable[FrozenStep]) -> None:
        """When it ends, a run removes the empty folders of its targets, even if another run is about to use them.

        No file is ever made for a target, so all these folders are empty unless something is put there.
        """
        for folder in {os.path.dirname(self.of(step.index)) for step in steps}:
            os.makedirs(folder, exist_ok=True)
            Path(folder, ".keep").touch()


def milestones(steps: Sequence[FrozenStep], distance: int = _MILESTONES) -> list[FrozenStep]:
    """Steps along the way to the ends of long chains, in order.

    Snakemake finds the jobs that a target needs by recursion, one level a job, and takes up targets in turn. With these
    among them no recursion goes deeper than `distance`, however long a chain is. All are needed for the ends anyway.
    """
    level: dict[int, int] = {}
    for step in steps:  # In the plan's order: what a step depends on comes before it.
        level[step.index] = 1 + max((level[index] for index in step.dependencies if index in level), default=0)
    found = [step for step in steps if level[step.index] % distance == 0]
    return sorted(found, key=lambda step: level[step.index])


def ends(steps: Sequence[FrozenStep]) -> list[FrozenStep]:
    """Those of `steps` that no other of them depends on."""
    inner = {index for step in steps for index in step.dependencies}
    return [step for step in steps if step.index not in inner]
