"""How far a copy is, on stderr, for those that take longer than two seconds.

On a terminal one line that changes; elsewhere (a log) an occasional line.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self

from marin_rules.units import size_text

_QUIET_SECONDS = 2.0
_TERMINAL_SECONDS = 0.5
_LOG_SECONDS = 15.0


class Progress:
    """Reports on one copy, from `with` to its end. `advance` may be called from any thread."""

    def __init__(self, what: str, total: int, source: str | None, target: str | None) -> None:
        self._what = what
        self._total = total
        self._way = f"{source or 'unknown region'} -> {target or 'unknown region'}"
        self._moved = 0
        self._began = time.monotonic()
        self._has_told = False
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="mirror progress", daemon=True)

    def advance(self, size: int) -> None:
        with self._lock:
            self._moved += size

    def line(self) -> str:
        """The state as a person reads it."""
        seconds = max(time.monotonic() - self._began, 0.001)
        share = f"{100 * self._moved // self._total}%" if self._total else "100%"
        speed = size_text(int(self._moved / seconds))
        moved, total = size_text(self._moved), size_text(self._total)
        return f"copying {self._what}: {moved} of {total} ({share}), {speed}/s, {self._way}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if self._has_told:
            outcome = "done" if kind is None else "stopped"
            self._tell(f"{self.line()}, {outcome} after {time.monotonic() - self._began:.0f} s", last=True)

    def _run(self) -> None:
        pause = _QUIET_SECONDS
        while not self._ended.wait(pause):
            self._has_told = True
            self._tell(self.line(), last=False)
            pause = _TERMINAL_SECONDS if _is_terminal() else _LOG_SECONDS

    @staticmethod
    def _tell(text: str, *, last: bool) -> None:
        try:
            if _is_terminal():
                sys.stderr.write(f"\r\033[K{text}" + ("\n" if last else ""))
            else:
                sys.stderr.write(text + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            # Nobody reads it any more, which is no reason to stop a copy.
            pass


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except ValueError:
        return False
