"""What a run that did not get everything done says at the end: counts, what failed and why, what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_FAILURES_SHOWN = 20
_ERROR_CHARACTERS = 300
"""A longer error is cut: the log has all of it."""


@dataclass(frozen=True)
class FailedStep:
    """A step that failed, for people."""

    name: str
    log: str
    error: str = ""
    """The last line of what is known about the cause; empty if nothing is."""


def closing(*, done: int, failed: Sequence[FailedStep], stopped: int, left: int, retries_failed: bool) -> str:
    """The closing lines. `retries_failed`: the same command tries failed steps again."""
    counts = [f"{done} done"]
    if failed or not stopped:
        counts.append(f"{len(failed)} failed")
    if stopped:
        counts.append(f"{stopped} stopped")
    return "\n".join([", ".join([*counts, f"{left} not run"]), *_failures(failed), _next(failed, retries_failed)])


def _failures(failed: Sequence[FailedStep]) -> Iterable[str]:
    for step in failed[:_FAILURES_SHOWN]:
        yield f"  {step.name}  log: {step.log}"
        if step.error:
            yield f"      {last_line(step.error)}"
    if len(failed) > _FAILURES_SHOWN:
        yield f"  ... and {len(failed) - _FAILURES_SHOWN} more; `--report report.html` shows all of them"


def last_line(error: str) -> str:
    """The last line of an error that says something, cut if it is very long, without what a terminal would obey."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    text = "".join(letter if letter.isprintable() else " " for letter in lines[-1]) if lines else ""
    return text if len(text) <= _ERROR_CHARACTERS else text[: _ERROR_CHARACTERS - 3] + "..."


def _next(failed: Sequence[FailedStep], retries_failed: bool) -> str:
    if not failed:
        return "Run the same command again to continue: what is done is kept."
    if retries_failed:
        return "Run the same command again to retry: what is done is kept."
    return "Steps that failed are run again with force_run_failed=true: what is done is kept."
