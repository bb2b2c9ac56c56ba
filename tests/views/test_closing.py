"""The last lines of a run that did not get everything done."""

import pytest

from marin_rules.views.closing import FailedStep, closing, last_line

AGAIN = "Run the same command again to retry: what is done is kept."
GO_ON = "Run the same command again to continue: what is done is kept."
FORCE = "Steps that failed are run again with force_run_failed=true: what is done is kept."
ONE = [FailedStep("bad", "out/bad-1/.executor_log", "ValueError: no")]


@pytest.mark.parametrize(
    ("done", "failed", "stopped", "left", "retries_failed", "first", "last"),
    [
        (2, ONE, 0, 2, True, "2 done, 1 failed, 2 not run", AGAIN),
        (2, ONE, 0, 0, False, "2 done, 1 failed, 0 not run", FORCE),
        (1, ONE, 3, 1, True, "1 done, 1 failed, 3 stopped, 1 not run", AGAIN),
        (1, [], 1, 7, True, "1 done, 1 stopped, 7 not run", GO_ON),
        (1, [], 1, 7, False, "1 done, 1 stopped, 7 not run", GO_ON),
        (4, [], 0, 1, True, "4 done, 0 failed, 1 not run", GO_ON),
    ],
)
def test_counts_and_what_to_do_next(
    done: int, failed: list[FailedStep], stopped: int, left: int, retries_failed: bool, first: str, last: str
) -> None:
    lines = closing(done=done, failed=failed, stopped=stopped, left=left, retries_failed=retries_failed).splitlines()
    assert (lines[0], lines[-1]) == (first, last)
    assert lines[1:-1] == (["  bad  log: out/bad-1/.executor_log", "      ValueError: no"] if failed else [])


def test_a_failure_of_unknown_cause_still_has_its_log() -> None:
    lines = closing(done=0, failed=[FailedStep("a", "out/a/.executor_log")], stopped=0, left=0, retries_failed=True)
    assert lines.splitlines()[1:-1] == ["  a  log: out/a/.executor_log"]


def test_many_failures_are_counted_after_the_first_ones() -> None:
    failed = [FailedStep(f"step{number}", "log", "E") for number in range(500)]
    text = closing(done=0, failed=failed, stopped=0, left=0, retries_failed=True)
    assert len(text.splitlines()) < 60
    assert "step0" in text
    assert "... and 480 more" in text


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("ValueError: no", "ValueError: no"),
        ("Traceback\n  somewhere\nValueError: no\n\n", "ValueError: no"),
        ("", ""),
        (" \n ", ""),
        ("red \x1b[31malert\x07", "red  [31malert "),
        ("x" * 400, "x" * 297 + "..."),
    ],
)
def test_the_last_line_of_an_error(error: str, line: str) -> None:
    assert last_line(error) == line
