"""The clocks by which leases are judged. A holder and those who wait for its lease each use the more careful one.

Other machines' clocks run on while this one is suspended: the holder of a lease therefore counts that time
(`since_boot`). A process that waits for a lease does not (`monotonic`): while this machine was suspended, a holder on
the same machine could not refresh its lease either.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The clocks, so that tests need not wait."""

    def monotonic(self) -> float:
        """Seconds that never go back and do not count suspension: decides when another's lease is stale."""

    def since_boot(self) -> float:
        """Seconds that never go back and count suspension: decides how long our own lease is surely ours."""

    def time(self) -> float:
        """Seconds since 1970: what people are shown."""


class SystemClock:
    """The clocks of this machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def since_boot(self) -> float:
        return since_boot()

    def time(self) -> float:
        return time.time()


def since_boot() -> float:
    """Seconds that also run while the machine is suspended, where the system has such a clock (Linux does)."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
