"""How the process of a step ends: as Python ends, but not without bound.

A function that has returned may not be through: threads that still write, pools that nobody shut down, exit handlers,
children to be joined, files with something in their buffers. Python sees to all of that when a program ends, and so it
does here: non-daemon threads are joined, exit handlers run, files are flushed. Only then does the exit code say that
all went well. What hangs meanwhile is bounded: after `MARIN_STEP_END_SECONDS` the stacks of all threads are printed
and the process ends with an error.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import faulthandler
import gc
import io
import logging
import os
import stat
import sys
import threading
import traceback
from collections.abc import Iterator
from importlib.machinery import ExtensionFileLoader
from typing import Any, NoReturn

from marin_rules.completion import is_declared_complete
from marin_rules.execution.noted_signals import noted_stop_signal

END_SECONDS_VARIABLE = "MARIN_STEP_END_SECONDS"
_END_SECONDS = 600.0

EXIT_UNWRITTEN = 74
"""EX_IOERR: something that the step had written to a file could not be brought to the disk."""

_STANDARD_ERROR = 2
_LOST_DATA = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS, errno.ESTALE})
_BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)

_exit_code = 0
_known_modules: frozenset[str] = frozenset()


def end_seconds() -> float:
    """How long a process may take to end after its function has returned."""
    try:
        return max(1.0, float(os.environ[END_SECONDS_VARIABLE]))
    except (KeyError, ValueError):
        return _END_SECONDS


def prepare_end() -> None:
    """Called before any code of the step: our exit handler is then the last one to run."""
    global _known_modules
    _known_modules = frozenset(sys.modules)
    gc.freeze()  # What was there before the step is not the step's to be looked through at its end.
    faulthandler.enable(_STANDARD_ERROR)
    atexit.register(_settle)


def lingering() -> tuple[str, ...]:
    """What this process has to wait for before it can end."""
    threads = [thread for thread in threading.enumerate() if not thread.daemon]
    found = [f"thread {thread.name}" for thread in threads if thread is not threading.current_thread()]
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None:
        found += [f"process {child.name}" for child in multiprocessing.active_children() if not child.daemon]
    return tuple(found)


def end(code: int) -> NoReturn:
    """End this process as Python ends, with this exit code if nothing goes wrong on the way."""
    global _exit_code
    _exit_code = code
    faulthandler.dump_traceback_later(end_seconds(), exit=True, file=_STANDARD_ERROR)
    # What Python itself calls behind `sys.exit`. Raising SystemExit would unwind the frames that a fork inherited from
    # the worker, with all their `finally`.
    ctypes.pythonapi.Py_Exit(code)
    raise AssertionError("unreachable")


def end_forked_copy(error: BaseException | None) -> NoReturn:
    """End a copy of the step's process that came back from the step's function, by a return or by an exception.

    It ends as the child of a plain script would, and never speaks for the step.
    """
    if error is None:
        end(0)
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        end(1)
    if isinstance(error.code, int) or error.code is None:
        end((error.code or 0) & 0xFF)
    print(error.code, file=sys.stderr)
    end(1)


def _settle() -> None:
    """The last exit handler: threads are joined, and the step's own handlers have run.

    Everything that is still buffered goes to its file, and a disk that does not take it is an error: Python itself
    would ignore that. What is left then is to take the interpreter apart, for the sake of destructors. Where there is
    none, the process ends at once (that saves some 20 ms of CPU a step).
    """
    logging.shutdown()
    problems = list(_flush_files())
    for problem in problems:
        _say(problem)
    if problems:
        os._exit(EXIT_UNWRITTEN)
    stop_signal = noted_stop_signal()
    if stop_signal and not is_declared_complete():
        os._exit(128 + stop_signal)
    if _exit_code == 0:
        sys.unraisablehook = _refuse_lost_data
    if not _has_destructors():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(_exit_code)


def _flush_files() -> Iterator[str]:
    """Bring what is buffered for files to these; yields what could not be written."""
    fsspec = sys.modules.get("fsspec.spec")
    remote = () if fsspec is None or _exit_code else (fsspec.AbstractBufferedFile,)
    for thing in gc.get_objects():
        kind = type(thing)
        try:
            if issubclass(kind, _BUFFERED) and _is_open_file(thing):
                thing.flush()
            elif issubclass(kind, remote) and not thing.closed and thing.mode != "rb":
                thing.close()  # An object appears only when its upload is closed. A failed step leaves none.
        except Exception as error:
            yield f"could not write to {getattr(thing, 'name', None) or getattr(thing, 'path', thing)}: {error}"


def _is_open_file(thing: Any) -> bool:
    """Whether this is an open regular file: a pipe's other end may be gone, and that is nobody's loss."""
    try:
        return not thing.closed and stat.S_ISREG(os.fstat(thing.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _refuse_lost_data(unraisable: Any) -> None:
    """Python's hook for errors in destructors: one that means lost data is not ignored."""
    error = unraisable.exc_value
    sys.__unraisablehook__(unraisable)
    if isinstance(error, OSError) and error.errno in _LOST_DATA:
        os._exit(EXIT_UNWRITTEN)


def _has_destructors() -> bool:
    """Whether the step has left something whose end may matter: an object with a destructor, or a C library."""
    for name in sys.modules.keys() - _known_modules:
        loader = getattr(getattr(sys.modules[name], "__spec__", None), "loader", None)
        if isinstance(loader, ExtensionFileLoader):
            return True
    destructors: dict[type, bool] = {}
    for thing in gc.get_objects():
        kind = type(thing)
        if kind not in destructors:
            destructors[kind] = any("__del__" in vars(base) for base in kind.__mro__)
        if destructors[kind] and not _is_spent(thing):
            return True
    return False


def _is_spent(thing: object) -> bool:
    """Whether this is a stream with nothing left to be done: closed, or one of the standard ones."""
    if not isinstance(thing, io.IOBase):
        return False
    try:
        return thing.closed or thing.fileno() <= _STANDARD_ERROR
    except (OSError, ValueError):
        return False


def _say(text: str) -> None:
    os.write(_STANDARD_ERROR, f"marin-rules: {text}\n".encode(errors="replace"))
