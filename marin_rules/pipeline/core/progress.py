"""Occasional lines about a task's shards, with its speed since it began."""

from __future__ import annotations

import time
from typing import Any

from marin_rules import this_process

_SECONDS = 10.0


class Progress:
    def __init__(self, shards: int, done_before: int) -> None:
        self._shards, self._before = shards, done_before
        self.done = done_before
        """Shards, with those of earlier attempts."""

        self._records = self._bytes = 0
        self._began = self._told = time.monotonic()

    def add(self, counts: dict[str, Any]) -> None:
        self.done += 1
        self._records += counts["read"]
        self._bytes += counts["bytes_read"]
        # The line about the last shard is left to the caller, who knows whether any failed.
        if self.done < self._shards and time.monotonic() - self._told > _SECONDS:
            self.tell()

    def tell(self) -> None:
        self._told = time.monotonic()
        seconds = max(self._told - self._began, 1e-3)
        process = this_process()
        task = f"task {process.task} of {process.tasks}: " if process.tasks > 1 else ""
        before = f" ({self._before} done before)" if self._before else ""
        print(
            f"{task}{self.done} of {self._shards} shards{before}, {self._records:,} records,"
            f" {self._records / seconds:,.0f} records/s, {_speed(self._bytes / seconds)}",
            flush=True,
        )


def _speed(bytes_per_second: float) -> str:
    """Of few bytes, which take no longer than it takes to begin, in a unit that does not make them none."""
    if bytes_per_second < 1e6:
        return f"{bytes_per_second / 1e3:,.1f} kB/s"
    return f"{bytes_per_second / 1e6:,.1f} MB/s"
