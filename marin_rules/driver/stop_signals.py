"""Signals to the process that a person started, passed on to the engine that does the work.

A terminal sends Ctrl-C to both. systemd, `timeout` and the stop button of an IDE know only the process that they
started, and the engine would continue without it. The engine treats the same signal from both as one.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RunStopped(KeyboardInterrupt):
    """A signal stopped the run before everything was done."""

    def __init__(self, number: int) -> None:
        super().__init__(f"the run was stopped by {signal.Signals(number).name}")
        self.number = number


@contextmanager
def passed_on(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """While this lasts, signals that would end this process stop `process` instead; yields those that came.

    Signals that are ignored (nohup) or that the program handles itself are left alone, and so are all of them outside
    the main thread, where Python does not allow signal handlers.
    """
    came: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        came.append(number)
        process.send_signal(signal.SIGTERM)  # Never ignored, unlike SIGINT in the background of a script.

    saved = {}
    if threading.current_thread() is threading.main_thread():
        for number in _PASSED_ON:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                saved[number] = signal.signal(number, pass_on)
    try:
        yield came
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)
