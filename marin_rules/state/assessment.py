"""What a run would do with each step, and why. One answer for the dry run, the rules and the header of a real run.

Only identity and status decide. A step is done when its status says SUCCESS. One that is not done runs if it was
asked for or if a step that runs needs it; an unfinished ancestor of finished work is left alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from marin_rules.functions import NO_FUNCTION
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.status import CorruptStatusError, Status, status_path
from marin_rules.storage.leases.record import LeaseRecord, describe

StatusOrError = Status | CorruptStatusError | None


class State(StrEnum):
    """What happens to a step."""

    CACHED = "cached"
    RUN = "would run"
    ELSEWHERE = "running elsewhere"
    BLOCKED = "blocked"
    NOT_NEEDED = "not needed"


IDLE = frozenset({State.CACHED, State.NOT_NEEDED})
"""States of steps that a run need not deal with."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of one step and the reason for it."""

    step: FrozenStep
    state: State
    cause: str
    """Why, as far as the step itself is concerned; empty if only a dependency is the reason."""

    refused: bool = False
    """The step itself is refused (not only something it depends on)."""

    dependency: tuple[str, State] | None = None
    """A dependency that is (part of) the reason, and its state."""

    anew: bool = False
    """The step, or one that it depends on, is to be done again: earlier work on it does not count."""

    @property
    def reason(self) -> str:
        """The whole reason, in the words of a dry run."""
        return self.reason_with(str)

    def reason_with(self, name_of: Callable[[State], str]) -> str:
        """The whole reason; `name_of` words the state of a dependency."""
        parts = [self.cause] if self.cause else []
        if self.dependency is not None:
            name, state = self.dependency
            parts.append(f"dependency {name} {name_of(state)}")
        return "; ".join(parts)


@dataclass(frozen=True)
class Assessment:
    """A verdict on every step of the plan, in its order."""

    verdicts: tuple[Verdict, ...]

    def __getitem__(self, index: int) -> Verdict:
        return self.verdicts[index]

    @property
    def counts(self) -> Counter[State]:
        return Counter(verdict.state for verdict in self.verdicts)

    @property
    def scheduled(self) -> list[FrozenStep]:
        """Steps that a run has to deal with: to run, to wait for, or to refuse."""
        return [verdict.step for verdict in self.verdicts if verdict.state not in IDLE]

    def without(self, reasons: Mapping[int, str]) -> Assessment:
        """The same for a run that leaves these steps out, by their index, for a reason each."""
        return Assessment(
            tuple(
                Verdict(verdict.step, State.NOT_NEEDED, reasons[verdict.step.index])
                if verdict.step.index in reasons
                else verdict
                for verdict in self.verdicts
            )
        )

    @property
    def without_function(self) -> str | None:
        """Why this cannot be run because of steps without a function, which must already be done; otherwise None."""
        for verdict in self.verdicts:
            step = verdict.step
            if verdict.state is not State.RUN or step.function != NO_FUNCTION:
                continue
            if verdict.anew:
                return f"step {step.name!r} has no function to run, and so cannot be run again: force other steps."
            return (
                f"step {step.name!r} has no function to run, and it is not done. Give it one; or if its data is"
                f" complete, write {Status.SUCCESS} into {status_path(step.output_path)}."
            )
        return None


def assess(
    plan: FrozenPlan,
    statuses: Mapping[str, StatusOrError],
    *,
    forced: Collection[int] = (),
    lease_of: Callable[[FrozenStep], LeaseRecord | None] = lambda step: None,
    failed_at: Callable[[FrozenStep], str | None] = lambda step: None,
    progress_of: Callable[[FrozenStep], str | None] = lambda step: None,
) -> Assessment:
    """Judge every step. `forced` are steps to run even if they are done; everything that depends on them runs too.

    `progress_of` says how far a step got that was begun and will be continued, None if it starts from the beginning.
    """
    again = _asked_again(plan, frozenset(forced))
    reasons = _what_runs(plan, statuses, again)
    verdicts: list[Verdict] = []
    for step in plan.steps:
        status = statuses[step.output_path]
        if step.index not in reasons:
            state = State.CACHED if status is Status.SUCCESS else State.NOT_NEEDED
            verdicts.append(Verdict(step, state, _idle_reason(step, status)))
            continue
        if isinstance(status, CorruptStatusError):
            raise status
        lease = lease_of(step) if status is Status.RUNNING else None
        if lease is not None:
            verdicts.append(Verdict(step, State.ELSEWHERE, f"by {describe(lease, time.time())}"))
            continue
        if status is Status.FAILED and not plan.run.force_run_failed:
            reason = f"failed before{_at(failed_at(step))}, and failed steps are not to run again (force_run_failed)"
            verdicts.append(Verdict(step, State.BLOCKED, reason, refused=True))
            continue
        blocker = next((i for i in step.dependencies if verdicts[i].state is State.BLOCKED), None)
        if blocker is not None:
            verdicts.append(Verdict(step, State.BLOCKED, f"dependency {plan.steps[blocker].name} is blocked"))
            continue
        cause = reasons[step.index]
        if cause is not None:
            verdicts.append(_runs_again(plan, step, cause))
            continue
        pending = (i for i in step.dependencies if verdicts[i].state in (State.RUN, State.ELSEWHERE))
        waiting_for = next(pending, None) if status is None else None
        dependency = None if waiting_for is None else (plan.steps[waiting_for].name, verdicts[waiting_for].state)
        reason = _own_reason(step, status, failed_at)
        anew = step.index in again
        progress = None if status is None or anew else progress_of(step)
        reason = reason if progress is None else f"{reason}; {progress}"
        verdicts.append(Verdict(step, State.RUN, reason, dependency=dependency, anew=anew))
    return Assessment(tuple(verdicts))


_FORCED = -1
"""Replaces the index of a dependency that is the reason."""


def _runs_again(plan: FrozenPlan, step: FrozenStep, cause: int) -> Verdict:
    if cause == _FORCED:
        return Verdict(step, State.RUN, "forced", anew=True)
    return Verdict(step, State.RUN, "", dependency=(plan.steps[cause].name, State.RUN), anew=True)


def _asked_again(plan: FrozenPlan, forced: frozenset[int]) -> dict[int, int]:
    """Steps that run even if they are done: index -> why: forced, or because of the dependency with this index."""
    again: dict[int, int] = {}
    for step in plan.steps:
        if not step.needed:
            continue
        if step.index in forced:
            again[step.index] = _FORCED
        else:
            cause = next((i for i in step.dependencies if i in again), None)
            if cause is not None:
                again[step.index] = cause
    return again


def _what_runs(
    plan: FrozenPlan, statuses: Mapping[str, StatusOrError], again: Mapping[int, int]
) -> dict[int, int | None]:
    """Steps to run: index -> why a finished one runs again, see `_asked_again` (None: because it is not finished)."""
    runs: dict[int, int | None] = {}
    pending = [step.index for step in plan.steps if step.root or step.index in again]
    while pending:
        index = pending.pop()
        done = statuses[plan.steps[index].output_path] is Status.SUCCESS
        if index in runs or (done and index not in again):
            continue
        runs[index] = again.get(index) if done else None
        pending.extend(plan.steps[index].dependencies)
    return runs


def _own_reason(step: FrozenStep, status: StatusOrError, failed_at: Callable[[FrozenStep], str | None]) -> str:
    if status is Status.FAILED:
        return f"failed before{_at(failed_at(step))}"
    if status is Status.DEP_FAILED:
        return f"a dependency failed before{_at(failed_at(step))}"
    if status is Status.CANCELLED:
        return f"was stopped before{_at(failed_at(step))}"
    if status is Status.RUNNING:
        # Nobody has the whole of an array step: its tasks may wait in a queue.
        return "was begun, but no task of it is running" if step.tasks else "was running, but its worker is gone"
    return "new"


def _idle_reason(step: FrozenStep, status: StatusOrError) -> str:
    if status is Status.SUCCESS:
        return "done"
    return "everything built from it is done" if step.needed else "not asked for"


def _at(moment: str | None) -> str:
    return f" at {moment}" if moment else ""
