"""How a process ends while daemon threads are still running: it is torn down around them, and they stay where they are.

Python ends such threads when they next ask for the interpreter's lock, in the middle of whatever they call. If that is
C++ (tensorstore, pybind11), the whole process aborts: a good step would occasionally fail at its very end. So Python's
own last phase is skipped. The parts that matter are done here: destructors run, and C's exit handlers. The lock is kept
meanwhile, and a thread that waits for it does no harm.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import threading
import warnings
from collections.abc import Collection, Iterable
from types import ModuleType
from typing import NoReturn

_WITHOUT_TURNS = 1e6
"""Seconds until another thread may request its turn: longer than any shutdown may take."""


def has_daemon_threads() -> bool:
    return any(thread.daemon for thread in threading.enumerate())


def end_beside_threads(code: int, kept_modules: Collection[str]) -> NoReturn:
    """End this process, after all exit handlers of Python have run.

    What is in `kept_modules` is left as it is: it was there before any code whose destructors matter.
    """
    sys.setswitchinterval(_WITHOUT_TURNS)
    gc.collect()
    _forget_hooks()
    _clear(module for name, module in reversed(list(sys.modules.items())) if name not in kept_modules)
    gc.collect()
    _flush_standard_streams()
    ctypes.PyDLL(None).exit(code)  # Unlike CDLL, it keeps the interpreter's lock.
    raise AssertionError("unreachable")


def _forget_hooks() -> None:
    """Drop what libraries have registered to be called: it would find its modules empty, and complain."""
    gc.callbacks.clear()
    warnings.simplefilter("ignore")
    threading.excepthook = lambda arguments: None
    _flush_standard_streams()
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # Libraries put wrappers around them.


def _flush_standard_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _clear(modules: Iterable[ModuleType]) -> None:
    """Empty modules, and so destroy what only they held, in Python's order: private names first."""
    for module in modules:
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict):
            continue
        for is_private in (True, False):
            for name in list(names):
                if isinstance(name, str) and name != "__builtins__" and _is_private(name) is is_private:
                    names[name] = None


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")
