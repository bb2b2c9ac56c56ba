"""The table of steps that heads a run and is the answer of a dry run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable

from marin_rules.execution.assessment import IDLE, Assessment, State, Verdict
from marin_rules.execution.frozen import FrozenStep

_ORDER = (State.RUN, State.ELSEWHERE, State.BLOCKED, State.CACHED, State.NOT_NEEDED)
_COLOURS = {
    State.RUN: "33",
    State.ELSEWHERE: "36",
    State.BLOCKED: "31",
    State.CACHED: "32",
    State.NOT_NEEDED: "90",
}
_MANY = 60
"""With more steps than this, finished and unneeded ones are only counted, unless all are asked for."""


type Destination = Callable[[FrozenStep], str | None]
"""Where a step runs, in a few words; None where there is nothing to say."""


def table(
    assessment: Assessment,
    *,
    dry_run: bool,
    colour: bool = False,
    whole: bool = True,
    destination: Destination = lambda step: None,
) -> str:
    """Every step with its state, its output path, the reason and where it goes; then a line with the counts."""
    shown = [verdict for verdict in assessment.verdicts if whole or verdict.state not in IDLE]
    left_out = len(assessment.verdicts) - len(shown)
    lines = list(_rows(shown, dry_run=dry_run, colour=colour, destination=destination))
    if left_out:
        lines.append(f"... and {left_out} finished or unneeded steps")
    return "\n".join([*lines, "", summary(assessment, dry_run=dry_run)])


def heading(assessment: Assessment, *, colour: bool = False, destination: Destination = lambda step: None) -> str:
    """The table as it heads a real run: whole for a small experiment, else without what is done."""
    whole = len(assessment.verdicts) <= _MANY
    return table(assessment, dry_run=False, colour=colour, whole=whole, destination=destination)


def _rows(verdicts: Iterable[Verdict], *, dry_run: bool, colour: bool, destination: Destination) -> Iterable[str]:
    rows = [(state_name(verdict.state, dry_run=dry_run), verdict) for verdict in verdicts]
    if not rows:
        return
    state_width = max(len(state) for state, _ in rows)
    name_width = max(len(verdict.step.name) for _, verdict in rows)
    wide = shutil.get_terminal_size((100, 24)).columns
    for state, verdict in rows:
        label = f"{state:<{state_width}}"
        if colour:
            label = f"\x1b[{_COLOURS[verdict.state]}m{label}\x1b[0m"
        head = f"{label}  {verdict.step.name:<{name_width}}  {verdict.step.output_path}"
        reason = "" if verdict.state is State.CACHED else f"  ({verdict.reason})"
        if state_width + name_width + len(verdict.step.output_path) + len(reason) + 4 > wide and reason:
            reason = f"\n{'':<{state_width}}    {reason.strip()}"
        where = destination(verdict.step) if verdict.state is State.RUN else None
        yield head + reason + (f"\n{'':<{state_width}}    -> {where}" if where else "")


def state_name(state: State, *, dry_run: bool) -> str:
    return "to run" if state is State.RUN and not dry_run else state.value


def summary(assessment: Assessment, *, dry_run: bool) -> str:
    """One line: how many steps there are in which state."""
    counts = assessment.counts
    parts = [f"{counts[state]} {state_name(state, dry_run=dry_run)}" for state in _ORDER if counts[state]]
    total = len(assessment.verdicts)
    return f"{total} {'step' if total == 1 else 'steps'}: {', '.join(parts) or 'nothing to do'}"


def duration(seconds: float) -> str:
    """Elapsed time as people say it."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{seconds:.1f}s"
