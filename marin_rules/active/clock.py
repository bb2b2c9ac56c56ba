"""The clock used to wait for something to end, replaceable so that tests need not wait."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time, and lets it pass."""

    def monotonic(self) -> float:
        """Seconds that never go back: how long something takes."""

    def time(self) -> float:
        """Seconds since 1970: what people are shown, and what other machines have recorded."""

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clock of this machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
