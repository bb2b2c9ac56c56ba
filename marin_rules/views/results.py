"""The last word of a run that ended well: where the results are, or what was asked for and is not there."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from marin_rules.plans.frozen import FrozenPlan, FrozenStep

_SHOWN = 20
_NOT_BUILT = "asked for, but not built:"
_GONE = "it was done, but its folder was deleted or moved during this run; run the same command to build it again"


@dataclass(frozen=True)
class Cut:
    """What the command line leaves out of the experiment."""

    until: Collection[str] = ()
    omit_from: Collection[str] = ()
    """Rules, or targets of steps, as they were given."""


def results(
    plan: FrozenPlan,
    is_done: Callable[[FrozenStep], bool],
    names_of: Callable[[FrozenStep], Collection[str]],
    cut: Cut,
    gone: Collection[str] = (),
) -> str:
    """The paths of what was asked for, and of each step that is missing among it the reason.

    `names_of` tells what the command line may call a step: its rule and its target; `gone` are output paths that
    were there earlier in this run.
    """
    roots = [step for step in plan.steps if step.root]
    missing = [step for step in roots if not is_done(step)]
    done = [step for step in roots if step not in missing] if missing else roots
    if not missing:
        return _listed("all done, the results are in:", done, plan, lambda step: "")
    reasons = _Reasons(plan, is_done, names_of, cut)

    def reason(step: FrozenStep) -> str:
        return f"  ({_GONE if step.output_path in gone else reasons.of(step)})"

    title = "asked for, but not there any more:" if any(step.output_path in gone for step in missing) else _NOT_BUILT
    said = _listed(title, missing, plan, reason)
    return f"{said}\n{_listed('the other results are in:', done, plan, lambda step: '')}" if done else said


def _listed(title: str, steps: list[FrozenStep], plan: FrozenPlan, remark: Callable[[FrozenStep], str]) -> str:
    lines = [title, *(f"  {step.name}  {step.output_path}{remark(step)}" for step in steps[:_SHOWN])]
    if len(steps) > _SHOWN:
        lines.append(f"  ... and {len(steps) - _SHOWN} more under {plan.run.prefix}")
    return "\n".join(lines)


class _Reasons:
    def __init__(
        self,
        plan: FrozenPlan,
        is_done: Callable[[FrozenStep], bool],
        names_of: Callable[[FrozenStep], Collection[str]],
        cut: Cut,
    ) -> None:
        self._plan = plan
        self._is_done = is_done
        self._names_of = names_of
        self._cut = cut

    def of(self, step: FrozenStep) -> str:
        if (name := self._named(step, self._cut.omit_from)) is not None:
            return f"--omit-from {name} leaves it out"
        if (origin := self._omitted_below(step)) is not None:
            return f"it depends on {origin.name}, which --omit-from leaves out"
        if self._cut.until:
            return f"--until {' '.join(sorted(self._cut.until))} stops before it"
        return "it is not among the targets of this command"

    def _named(self, step: FrozenStep, given: Collection[str]) -> str | None:
        return next((name for name in self._names_of(step) if name in given), None)

    def _omitted_below(self, step: FrozenStep) -> FrozenStep | None:
        """The nearest unfinished step below this one that is left out by name."""
        pending, seen = list(step.dependencies), set[int]()
        while pending and self._cut.omit_from:
            index = pending.pop(0)
            below = self._plan.steps[index]
            if index in seen or self._is_done(below):
                continue
            seen.add(index)
            if self._named(below, self._cut.omit_from) is not None:
                return below
            pending.extend(below.dependencies)
        return None
