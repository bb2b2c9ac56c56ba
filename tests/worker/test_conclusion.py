"""What an attempt came to: every combination of report, exit status and stop signal."""

import signal

import pytest

from marin_rules.state.status import Status
from marin_rules.worker.conclusion import conclude
from marin_rules.worker.step_call import Outcome
from marin_rules.worker.step_end import EXIT_THROUGH
from marin_rules.worker.step_process import Returned

WHOLE = Outcome(artifact="1")
RAISED = Outcome(error="ValueError: no")
HANDLED = Outcome(stopped_by=signal.SIGTERM)
DECLARED = Outcome(stopped_by=signal.SIGTERM, complete=True)

EXITED = {code: code << 8 for code in (0, 1, 74, 143)}
THROUGH = EXIT_THROUGH << 8
KILLED, TERMINATED, SEGFAULT = signal.SIGKILL.value, signal.SIGTERM.value, signal.SIGSEGV.value


@pytest.mark.parametrize(
    ("outcome", "exit_status", "stop_signal", "status", "words"),
    [
        # Nobody asked it to stop.
        (WHOLE, THROUGH, 0, Status.SUCCESS, None),
        (RAISED, EXITED[1], 0, Status.FAILED, "ValueError: no"),
        (RAISED, THROUGH, 0, Status.FAILED, "ValueError: no"),
        (WHOLE, EXITED[0], 0, Status.FAILED, "ended with exit code 0 while it was ending"),
        (WHOLE, EXITED[1], 0, Status.FAILED, "ended with exit code 1 while it was ending"),
        (WHOLE, EXITED[74], 0, Status.FAILED, "could not be flushed to its files"),
        (WHOLE, SEGFAULT, 0, Status.FAILED, "killed by SIGSEGV"),
        (None, EXITED[0], 0, Status.FAILED, "exit code 0 before its function returned"),
        (None, SEGFAULT, 0, Status.FAILED, "killed by SIGSEGV"),
        (None, KILLED, 0, Status.FAILED, "when memory runs out"),
        # The worker passed a stop signal on.
        (WHOLE, THROUGH, signal.SIGINT, Status.CANCELLED, "stopped by SIGINT; its function returned after that"),
        (RAISED, EXITED[1], signal.SIGTERM, Status.CANCELLED, "stopped by SIGTERM"),
        (None, TERMINATED, signal.SIGTERM, Status.CANCELLED, "stopped by SIGTERM"),
        (None, KILLED, signal.SIGHUP, Status.CANCELLED, "stopped by SIGHUP"),
        (DECLARED, THROUGH, signal.SIGTERM, Status.SUCCESS, None),
        (DECLARED, KILLED, signal.SIGTERM, Status.CANCELLED, "stopped by SIGTERM"),
        # It reached the step alone, which handled it: in its function, or afterwards.
        (HANDLED, THROUGH, 0, Status.CANCELLED, "without declare_complete()"),
        (DECLARED, THROUGH, 0, Status.SUCCESS, None),
        (WHOLE, EXITED[143], 0, Status.CANCELLED, "stopped by SIGTERM"),
        (RAISED, EXITED[143], 0, Status.FAILED, "ValueError: no"),
        (None, EXITED[143], 0, Status.FAILED, "exit code 143 before its function returned"),
    ],
)
def test_success_needs_a_return_a_clean_end_and_no_stop(
    outcome: Outcome | None, exit_status: int, stop_signal: int, status: Status, words: str | None
) -> None:
    returned = None if outcome is None else Returned(process=1, outcome=outcome, end_seconds=600)
    conclusion = conclude(returned, exit_status, stop_signal=stop_signal)
    assert conclusion.status is status
    assert (words or "") in (conclusion.outcome.error or "")
    assert (conclusion.outcome.error is None) == (status is Status.SUCCESS)
    assert bool(conclusion.stopped_by) == (status is Status.CANCELLED)


def test_a_process_that_does_not_end_is_named_with_what_it_waited_for() -> None:
    returned = Returned(process=1, outcome=WHOLE, lingering=("thread uploader",), end_seconds=30)
    in_time = conclude(returned, THROUGH, ending_seconds=31)
    assert in_time.status is Status.SUCCESS  # Late, but it did end by itself.
    overdue = conclude(returned, EXITED[1], ending_seconds=31)
    assert overdue.status is Status.FAILED
    assert "did not end within 30 s. It was waiting for thread uploader." in (overdue.outcome.error or "")
