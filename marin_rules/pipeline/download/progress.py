"""Occasional lines about a task's files: how many, how fast, and how long the rest will take."""

from __future__ import annotations

import threading
import time

from marin_rules import this_process

_SECONDS = 10.0


class Progress:
    """Counted by many threads. What was done before counts as done, but not as fast."""

    def __init__(self, files: int, done_before: int, bytes_to_fetch: int | None) -> None:
        self._files, self._done, self._before = files, done_before, done_before
        self._expected = bytes_to_fetch
        self._fetched = 0
        self._lock = threading.Lock()
        self._began = self._told = time.monotonic()

    def add_bytes(self, count: int) -> None:
        with self._lock:
            self._fetched += count
            is_due = time.monotonic() - self._told > _SECONDS
            if is_due:
                self._told = time.monotonic()
        if is_due:
            self.tell()

    def add_file(self) -> None:
        with self._lock:
            self._done += 1

    def expect_less(self, count: int) -> None:
        """Bytes that are already here, from an earlier attempt."""
        with self._lock:
            if self._expected is not None:
                self._expected -= count

    def tell(self) -> None:
        process = this_process()
        task = f"task {process.task} of {process.tasks}: " if process.tasks > 1 else ""
        before = f" ({self._before} done before)" if self._before else ""
        speed = self._fetched / max(time.monotonic() - self._began, 1e-3)
        size = f"{self._fetched / 1e6:,.1f} MB"
        left = ""
        if self._expected is not None:
            size = f"{self._fetched / 1e6:,.1f} of {max(self._expected, self._fetched) / 1e6:,.1f} MB"
            missing = self._expected - self._fetched
            left = f", {missing / speed:,.0f} s left" if missing > 0 and speed else ""
        print(f"{task}{self._done} of {self._files} files{before}, {size}, {speed / 1e6:,.1f} MB/s{left}", flush=True)
