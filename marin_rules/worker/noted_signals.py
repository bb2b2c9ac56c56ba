"""Which stop signal has reached a step's process, even if the step handles signals itself.

A step may install a handler that sets a flag, and return when it sees the flag. Nobody outside could tell that from a
step that ran to its end. So every Python handler of a stop signal is wrapped, from the first one on: the signal is
noted, then the step's own handler is called. `signal.signal` and `signal.getsignal` show the step its own handlers.
Signals that the step blocks and fetches (`signal.sigwait` and its kin) are noted when they are fetched.

Handlers that a C library installs are not seen here; the worker still knows of every signal that it passed on.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_process: int | None = None
_noted = 0
"""Globals: signals are delivered to the process, and Python passes nothing of ours to their handlers."""


def note_stop_signals() -> None:
    """Begin to note the stop signals of this process, with Python's usual reactions to them. Called once."""
    global _process
    _process = os.getpid()
    install: Callable[..., Any] = signal.signal
    look_up: Callable[..., Any] = signal.getsignal

    def noting_signal(signalnum: int, handler: Any) -> Any:
        noting = signalnum in STOP_SIGNALS and callable(handler)
        return _unwrapped(install(signalnum, _Noting(handler) if noting else handler))

    def noting_getsignal(signalnum: int) -> Any:
        return _unwrapped(look_up(signalnum))

    signal.signal, signal.getsignal = noting_signal, noting_getsignal
    for name in ("sigwait", "sigwaitinfo", "sigtimedwait"):
        setattr(signal, name, _noting_wait(getattr(signal, name)))
    for number in STOP_SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def noted_stop_signal() -> int:
    """The first stop signal that this process handled; 0 for none. Those of forked copies do not count."""
    return _noted if os.getpid() == _process else 0


class _Noting:
    """A handler of the step's, behind a note."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        _note(number)
        return self.handler(number, frame)


def _noting_wait(wait: Callable[..., Any]) -> Callable[..., Any]:
    """One of the functions that fetch a pending signal, or None if time is up, with a note of what they fetch."""

    @functools.wraps(wait)
    def noting(*arguments: Any) -> Any:
        fetched = wait(*arguments)
        number = getattr(fetched, "si_signo", fetched)
        if number in STOP_SIGNALS:
            _note(number)
        return fetched

    return noting


def _note(number: int) -> None:
    global _noted
    if os.getpid() == _process:
        _noted = _noted or number


def _unwrapped(handler: Any) -> Any:
    return handler.handler if isinstance(handler, _Noting) else handler
