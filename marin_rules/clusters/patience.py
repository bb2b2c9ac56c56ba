"""How long a cluster that does not accept a job is asked again: pure.

A busy cluster is asked for as long as it takes, with growing pauses. One that refuses a job for a reason that may or
may not pass is asked for some time; then a person must see it.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0
"""Before a cluster is asked again. Others wait for the same one."""


def pause_seconds(tries: int) -> float:
    """How long to wait after this many failed attempts."""
    return float(min(FIRST_PAUSE_SECONDS * 2.0 ** min(tries - 1, 30), LONGEST_PAUSE_SECONDS))


@dataclass(frozen=True)
class Refusals:
    """Submissions that were refused, one after the other. All times are by one clock."""

    since: float
    count: int
    not_before: float
    """When to try again."""

    @classmethod
    def after(cls, before: Refusals | None, now: float, patience: float) -> Refusals | None:
        """One more refusal; None when patience runs out."""
        since, count = (now, 1) if before is None else (before.since, before.count + 1)
        not_before = now + pause_seconds(count)
        return None if not_before - since > patience else cls(since, count, not_before)

    @classmethod
    def without_end(cls, before: Refusals | None, now: float) -> Refusals:
        """One more refusal that costs no patience."""
        count = 1 if before is None else before.count + 1
        return cls(now, count, now + pause_seconds(count))
