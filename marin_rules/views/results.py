"""The closing message of a successful run: where the results are, or what was asked for and is missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from marin_rules.plans.frozen import FrozenPlan, FrozenStep

_SHOWN = 20
_NOT_BUILT = "asked for, but not built:"
_NO_TARGET = "it is not among the targets of this command"
_GONE = "it was done, but its folder was deleted or moved during this run; run the same command to build it again"


def results(
    plan: FrozenPlan,
    is_done: Callable[[FrozenStep], bool],
    left_out: Mapping[int, str],
    gone: Collection[str] = (),
) -> str:
    """The paths of what was asked for, and for each missing step the reason.

    `left_out` says of steps, by their index, why the command line leaves them out; `gone` are output paths that were
    there earlier in this run.
    """
    roots = [step for step in plan.steps if step.root]
    missing = [step for step in roots if not is_done(step)]
    done = [step for step in roots if step not in missing] if missing else roots
    if not missing:
        return _listed("all done, the results are in:", done, plan, lambda step: "")

    def reason(step: FrozenStep) -> str:
        return f"  ({_GONE if step.output_path in gone else left_out.get(step.index, _NO_TARGET)})"

    title = "asked for, but no longer there:" if any(step.output_path in gone for step in missing) else _NOT_BUILT
    said = _listed(title, missing, plan, reason)
    return f"{said}\n{_listed('the other results are in:', done, plan, lambda step: '')}" if done else said


def _listed(title: str, steps: list[FrozenStep], plan: FrozenPlan, remark: Callable[[FrozenStep], str]) -> str:
    lines = [title, *(f"  {step.name}  {step.output_path}{remark(step)}" for step in steps[:_SHOWN])]
    if len(steps) > _SHOWN:
        lines.append(f"  ... and {len(steps) - _SHOWN} more under {plan.run.prefix}")
    return "\n".join(lines)
