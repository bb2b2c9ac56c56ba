"""What `--until` and `--omit-from` leave out of a run: determined before Snakemake makes any job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from marin_rules.plans.frozen import FrozenStep


@dataclass(frozen=True)
class Cut:
    """What the command line leaves out of the experiment."""

    until: Collection[str] = ()
    omit_from: Collection[str] = ()
    """Rules, or targets of steps, as they were given."""

    def among(self, names: Collection[str]) -> Cut:
        """As far as step names show: only Snakemake knows what else a rule needs."""
        return self if all(name in names for name in self.until) else Cut(omit_from=self.omit_from)

    def is_among(self, names: Collection[str]) -> bool:
        """Whether everything in it is the name of a step."""
        return all(name in names for name in (*self.until, *self.omit_from))


def left_out(
    steps: Sequence[FrozenStep], names_of: Callable[[FrozenStep], Collection[str]], cut: Cut
) -> dict[int, str]:
    """Why steps are left out, by their index, among all that a run deals with, dependencies first.

    `names_of` gives what the command line may call a step: its rule and its target.
    """
    reasons: dict[int, str] = {}
    origins: dict[int, FrozenStep] = {}
    for step in steps:
        if (name := _named(names_of(step), cut.omit_from)) is not None:
            origins[step.index] = step
            reasons[step.index] = f"--omit-from {name} leaves it out"
        elif (below := next((index for index in step.dependencies if index in origins), None)) is not None:
            origin = origins[step.index] = origins[below]
            reasons[step.index] = f"it depends on {origin.name}, which --omit-from leaves out"
    if cut.until:
        asked = (step.index for step in steps if _named(names_of(step), cut.until) is not None)
        kept = _with_dependencies(asked, steps)
        stops = f"--until {' '.join(sorted(cut.until))} stops before it"
        reasons = {step.index: stops for step in steps if step.index not in kept} | reasons
    return reasons


def _named(names: Collection[str], given: Collection[str]) -> str | None:
    return next((name for name in names if name in given), None)


def _with_dependencies(asked: Iterable[int], steps: Sequence[FrozenStep]) -> set[int]:
    """These steps and what they need, as far as the run deals with it."""
    dependencies = {step.index: step.dependencies for step in steps}
    found: set[int] = set()
    pending = list(asked)
    while pending:
        index = pending.pop()
        if index in dependencies and index not in found:
            found.add(index)
            pending.extend(dependencies[index])
    return found
