"""The table of steps that heads a run and is the result of a dry run."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable

from marin_rules.plans.frozen import FrozenStep
from marin_rules.state.assessment import IDLE, Assessment, State, Verdict

_ORDER = (State.RUN, State.ELSEWHERE, State.BLOCKED, State.CACHED, State.NOT_NEEDED)
_COLOURS = {
    State.RUN: "33",
    State.ELSEWHERE: "36",
    State.BLOCKED: "31",
    State.CACHED: "32",
    State.NOT_NEEDED: "90",
}
_MANY = 40
"""With more steps than this, those with nothing to do are only counted, by function, unless all are requested."""

_FUNCTIONS_SHOWN = 6
"""Of the functions whose steps are counted, those with the most steps; the others are counted together."""


type Destination = Callable[[FrozenStep], str | None]
"""Where a step runs, in a few words; None if there is nothing to say."""


def table(
    assessment: Assessment,
    *,
    dry_run: bool,
    colour: bool = False,
    whole: bool = False,
    destination: Destination = lambda step: None,
    cost: str | None = None,
) -> str:
    """Every step with its state, its output path, the reason and where it goes; then a line with the counts, and one
    about what they cost, if there is something to say.

    In a large experiment the steps with nothing to do share a line for each state, unless it is to be `whole`.
    """
    folds = not whole and len(assessment.verdicts) > _MANY
    shown = [verdict for verdict in assessment.verdicts if not (folds and verdict.state in IDLE)]
    width = max((len(state_name(state, dry_run=dry_run)) for state in assessment.counts), default=0)
    lines = list(_rows(shown, width, dry_run=dry_run, colour=colour, destination=destination))
    if folds:
        folded = list(_folded(assessment, width, colour=colour))
        lines += [*folded, f"{'':<{width}}  (`snakemake -n --verbose` lists them)"] if folded and dry_run else folded
    return "\n".join([*lines, "", summary(assessment, dry_run=dry_run), *([cost] if cost else [])])


def _folded(assessment: Assessment, width: int, *, colour: bool) -> Iterable[str]:
    """`cached  142 steps: 112 fit, 30 tokenize`"""
    for state in (state for state in _ORDER if state in IDLE):
        functions = Counter(_function(verdict.step) for verdict in assessment.verdicts if verdict.state is state)
        if functions:
            counts = [f"{count} {function}" for function, count in functions.most_common(_FUNCTIONS_SHOWN)]
            if len(functions) > _FUNCTIONS_SHOWN:
                rest = functions.most_common()[_FUNCTIONS_SHOWN:]
                counts.append(f"{sum(count for _, count in rest)} of {len(rest)} other functions")
            label = _label(state, f"{state.value:<{width}}", colour=colour)
            yield f"{label}  {_steps(functions.total())}: {', '.join(counts)}"


def _function(step: FrozenStep) -> str:
    return step.rule or step.function.rpartition(".")[2]


def _rows(
    verdicts: Iterable[Verdict], state_width: int, *, dry_run: bool, colour: bool, destination: Destination
) -> Iterable[str]:
    rows = [(state_name(verdict.state, dry_run=dry_run), verdict) for verdict in verdicts]
    if not rows:
        return
    name_width = max(len(verdict.step.name) for _, verdict in rows)
    wide = shutil.get_terminal_size((100, 24)).columns
    for state, verdict in rows:
        label = _label(verdict.state, f"{state:<{state_width}}", colour=colour)
        head = f"{label}  {verdict.step.name:<{name_width}}  {verdict.step.output_path}"
        why = verdict.reason_with(lambda state: state_name(state, dry_run=dry_run))
        reason = "" if verdict.state is State.CACHED else f"  ({why})"
        if state_width + name_width + len(verdict.step.output_path) + len(reason) + 4 > wide and reason:
            reason = f"\n{'':<{state_width}}    {reason.strip()}"
        where = destination(verdict.step) if verdict.state is State.RUN else None
        yield head + reason + (f"\n{'':<{state_width}}    -> {where}" if where else "")


def _label(state: State, text: str, *, colour: bool) -> str:
    return f"\x1b[{_COLOURS[state]}m{text}\x1b[0m" if colour else text


def state_name(state: State, *, dry_run: bool) -> str:
    """The name of a state: a dry run says what would run, a real one what it is about to run."""
    return "to run" if state is State.RUN and not dry_run else state.value


def summary(assessment: Assessment, *, dry_run: bool) -> str:
    """One line: how many steps there are in which state."""
    counts = assessment.counts
    parts = [f"{counts[state]} {state_name(state, dry_run=dry_run)}" for state in _ORDER if counts[state]]
    return f"{_steps(len(assessment.verdicts))}: {', '.join(parts) or 'nothing to do'}"


def _steps(count: int) -> str:
    return f"{count} {'step' if count == 1 else 'steps'}"
