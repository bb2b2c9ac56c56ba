"""Which processes end together. Best effort: does nothing on systems other than Linux."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None)

# A second program, because code of our own between fork and exec is not safe in a process that has threads.
_UNTIL_PARENT_DIES = f"""
import ctypes, os, signal, sys
try:
    ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, signal.SIGKILL, 0, 0, 0)
except (OSError, AttributeError):
    pass
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[3:])
"""


def adopt_orphans() -> None:
    """Make processes orphaned below this one its children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int) -> None:
    """Be killed when the process `parent` ends, whatever ends it; at once if it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def ending_with_us(program: str, words: Sequence[str]) -> list[str]:
    """A command that becomes `program`, called with `words`, and is killed when the thread that started it ends."""
    return [sys.executable, "-I", "-S", "-c", _UNTIL_PARENT_DIES, str(os.getpid()), program, *words]


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        _LIBC.prctl(option, value, 0, 0, 0)
