"""The outcome of an attempt at a step. A pure decision, from what is known about the step's process.

SUCCESS needs three witnesses that agree: the function returned, in the step's own process; that process then ended as
Python ends, and says so by its exit code; and no stop signal had been delivered, or the step declared its output
complete.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from marin_rules.clusters.prices import Cost
from marin_rules.state.status import Status
from marin_rules.worker.noted_signals import STOP_SIGNALS
from marin_rules.worker.step_call import Outcome
from marin_rules.worker.step_end import END_SECONDS_VARIABLE, EXIT_THROUGH, EXIT_UNWRITTEN
from marin_rules.worker.step_process import Returned

_CLOCK_SECONDS = 0.5
"""How much later than the process itself its worker may learn that the function had returned."""


@dataclass(frozen=True)
class Conclusion:
    """The state to be written, and what to say about it."""

    status: Status
    outcome: Outcome
    stopped_by: int = 0
    cost: Cost | None = None
    """For an array step: the outcome of its tasks, if known."""


def conclude(
    returned: Returned | None, exit_status: int, *, stop_signal: int = 0, ending_seconds: float = 0.0
) -> Conclusion:
    """Judge an attempt whose process has ended with `exit_status`.

    `stop_signal` is one that the worker passed on before the step was through; `ending_seconds` is how long the process
    took to end after its function had returned.
    """
    outcome = _outcome(returned, exit_status, ending_seconds)
    stopped_by = stop_signal or outcome.stopped_by
    if outcome.error is None and (not stopped_by or outcome.complete):
        return Conclusion(Status.SUCCESS, outcome)
    if not stopped_by:
        return Conclusion(Status.FAILED, outcome)
    error = f"stopped by {signal.Signals(stopped_by).name}"
    if outcome.error is None:
        error += "; its function returned after that, without declare_complete()"
    return Conclusion(Status.CANCELLED, Outcome(error=error), stopped_by)


def is_through(exit_status: int) -> bool:
    """Whether the process of a step that has not failed completed Python's shutdown."""
    return os.WIFEXITED(exit_status) and os.WEXITSTATUS(exit_status) == EXIT_THROUGH


def _outcome(returned: Returned | None, exit_status: int, ending_seconds: float) -> Outcome:
    """What the process reported, if the way it ended agrees; otherwise how it ended."""
    if returned is None:
        return Outcome(error=_death(exit_status, before="before its function returned"))
    outcome = returned.outcome
    if outcome.error is not None or is_through(exit_status):
        return outcome
    after = "its function returned, but "
    waited_for = f" It was waiting for {', '.join(returned.lingering)}." if returned.lingering else ""
    if ending_seconds >= returned.end_seconds - _CLOCK_SECONDS:
        return Outcome(
            error=f"{after}its process did not end within {returned.end_seconds:.0f} s.{waited_for} The stacks of its"
            f" threads are in the log; {END_SECONDS_VARIABLE} sets the limit."
        )
    if os.WIFEXITED(exit_status):
        code = os.WEXITSTATUS(exit_status)
        if code == EXIT_UNWRITTEN:
            return Outcome(error=f"{after}what it had written could not be flushed to its files (see the log)")
        if code - 128 in STOP_SIGNALS:
            return Outcome(complete=outcome.complete, stopped_by=code - 128)
    death = _death(exit_status, before="while it was ending")
    return Outcome(error=f"{after}{death}; what it wrote last may be missing")


def _death(exit_status: int, before: str) -> str:
    if os.WIFSIGNALED(exit_status):
        number = os.WTERMSIG(exit_status)
        hint = " (the kernel does that when memory runs out)" if number == signal.SIGKILL else ""
        return f"its process was killed by {signal.Signals(number).name}{hint}"
    return f"its process ended with exit code {os.WEXITSTATUS(exit_status)} {before}"
