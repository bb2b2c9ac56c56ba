"""How the process of a step ends: as Python ends, but within a time limit.

When a function has returned, there may be more to do: threads that still write, pools that nobody shut down, exit
handlers, children to be joined, files with something in their buffers. Python takes care of all that when a program
ends, and so it does here: non-daemon threads are joined, exit handlers run, files are flushed. Only then does the exit
code say that all went well. An error that means lost data (a full disk) counts here, even where Python only prints it.
What hangs meanwhile is bounded: after `MARIN_STEP_END_SECONDS` the stacks of all threads are printed and the process
ends with an error.
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
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from marin_rules.completion import is_declared_complete
from marin_rules.worker.end_beside_threads import end_beside_threads, has_daemon_threads
from marin_rules.worker.loaded_libraries import loaded_so_far
from marin_rules.worker.noted_signals import noted_stop_signal
from marin_rules.worker.sayable import sayable

END_SECONDS_VARIABLE = "MARIN_STEP_END_SECONDS"
_END_SECONDS = 600.0

EXIT_THROUGH = 85
"""A step's process has come to its end as Python does. Not 0: that is what `os._exit(0)` in an exit handler or a thread
says as well, and a program that takes the place of Python, before the last buffers are flushed."""

EXIT_UNWRITTEN = 74
"""EX_IOERR: something that the step had written to a file could not be flushed to disk."""

_GOOD = (0, EXIT_THROUGH)
"""Exit codes of processes that have not failed: of forked copies and ranks, and of the step's own."""

_STANDARD_ERROR = 2
_LOST_DATA = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS, errno.ESTALE})
_BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
_INNER = ("buffer", "raw", "fileobj", "_fp", "fp")
"""The attributes in which writers of text, archives and compressed files keep the file that they write to."""

# Globals: the interpreter passes nothing of ours to exit handlers, hooks and finalisers.
_exit_code = 0
_last_word: tuple[int, Callable[[], None] | None] = (0, None)
_has_lost_data = False
_is_settled = False
_has_closed_uploads = False
_libraries_before: int | None = None
_modules_before: frozenset[str] = frozenset()


def end_seconds() -> float:
    """How long a process may take to end after its function has returned."""
    try:
        return max(1.0, float(os.environ[END_SECONDS_VARIABLE]))
    except (KeyError, ValueError):
        return _END_SECONDS


def prepare_end() -> None:
    """Called before any code of the step: our exit handler is then the last one to run."""
    global _libraries_before, _modules_before
    _libraries_before = loaded_so_far()
    _modules_before = frozenset(sys.modules)
    gc.freeze()  # What was there before the step is not examined at the step's end.
    faulthandler.enable(_STANDARD_ERROR)
    _refuse_lost_data()
    atexit.register(_settle)


def lingering() -> tuple[str, ...]:
    """What this process has to wait for before it can end."""
    threads = [thread for thread in threading.enumerate() if not thread.daemon]
    found = [f"thread {sayable(thread.name)}" for thread in threads if thread is not threading.current_thread()]
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None:
        found += [f"process {sayable(child.name)}" for child in multiprocessing.active_children() if not child.daemon]
    return tuple(found)


def end(code: int, last_word: Callable[[], None] | None = None) -> NoReturn:
    """End this process as Python ends, with this exit code if nothing goes wrong on the way.

    `last_word` is called once threads have ended, the step's exit handlers have run and its files are written. It is
    not bounded: a disk that has much to write has not hung.
    """
    global _exit_code, _last_word
    _exit_code, _last_word = code, (os.getpid(), last_word)
    _bound_the_rest()
    if code in _GOOD:
        _refuse_lost_data()  # Again: the step may have replaced them with hooks of its own.
    # What Python itself calls behind `sys.exit`. Raising SystemExit would unwind the frames that a fork inherited from
    # the worker, with all their `finally`.
    ctypes.pythonapi.Py_Exit(code)
    raise AssertionError("unreachable")


def _bound_the_rest() -> None:
    """Give this process its time to end, counted from now."""
    faulthandler.dump_traceback_later(end_seconds(), exit=True, file=_STANDARD_ERROR)


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
    would ignore that. What remains is to tear down the interpreter and its libraries, for the sake of destructors. If
    there are none, the process ends without that (which saves some 20 ms of CPU per step).
    """
    global _is_settled
    try:
        logging.shutdown()
    except BaseException:  # A handler of the step's; Python only prints that.
        _print_traceback()
    try:
        problems = list(_flush_files())
    except BaseException as error:
        _print_traceback()
        problems = [f"could not look for files that are still open: {type(error).__name__}"]
    for problem in problems:
        _say(problem)
    if problems or _has_lost_data:
        os._exit(EXIT_UNWRITTEN)
    try:
        process, last_word = _last_word
        if last_word is not None and os.getpid() == process:  # And no copy that an exit handler has forked.
            faulthandler.cancel_dump_traceback_later()
            last_word()
            _bound_the_rest()
    except BaseException:
        _print_traceback()
        os._exit(1)
    stop_signal = noted_stop_signal()
    if stop_signal and not is_declared_complete():
        os._exit(128 + stop_signal)
    _is_settled = True
    if not _has_destructors():
        ctypes.PyDLL(None).fflush(None)  # The files of C.
        os._exit(_exit_code)
    if has_daemon_threads():
        end_beside_threads(_exit_code, _modules_before)


def _flush_files() -> Iterator[str]:
    """Flush what is buffered for files; yields what could not be written."""
    global _has_closed_uploads
    fsspec = sys.modules.get("fsspec.spec")
    remote = () if fsspec is None or _exit_code not in _GOOD else (fsspec.AbstractBufferedFile,)
    things = gc.get_objects()
    for thing in things:
        if not issubclass(type(thing), _BUFFERED):
            continue
        descriptor = _descriptor(thing)
        if descriptor in (1, _STANDARD_ERROR):
            with contextlib.suppress(Exception):
                thing.flush()
        elif descriptor is not None and _is_regular(descriptor):
            try:
                thing.flush()
            except Exception as error:
                yield _unwritten(thing, error)
    if not any(issubclass(type(thing), remote) for thing in things):
        return
    # An object appears only when its upload is closed; a failed step leaves none. Whatever still writes to the upload
    # is closed before it.
    uploads = [(distance, thing) for thing in things if (distance := _distance(thing, remote)) is not None]
    for _, thing in sorted(uploads, key=lambda upload: -upload[0]):
        try:
            thing.close()
        except Exception as error:
            yield _unwritten(thing, error)
    _has_closed_uploads = True


def _unwritten(thing: Any, error: Exception) -> str:
    return f"could not write to {getattr(thing, 'name', None) or getattr(thing, 'path', thing)}: {error}"


def _descriptor(thing: Any) -> int | None:
    """The descriptor of an open file; None for anything else."""
    try:
        return None if thing.closed else int(thing.fileno())
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _is_regular(descriptor: int) -> bool:
    """Whether this is a file on a disk: a pipe's other end may be gone, or the step has closed the descriptor."""
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _distance(thing: Any, remote: tuple[type, ...]) -> int | None:
    """How many writers are between this one and an upload that is open for writing; None if it writes to none."""
    distance = 0
    while not issubclass(type(thing), remote):
        if not issubclass(type(thing), io.IOBase) and type(thing).__name__ not in ("ZipFile", "TarFile"):
            return None
        try:
            # Not by `or`: a file may have a length, or none.
            inner = [found for name in _INNER if (found := getattr(thing, name, None)) is not None]
        except Exception:
            return None
        if not inner or distance > len(_INNER):
            return None
        thing = inner[0]
        distance += 1
    try:
        return None if thing.closed or thing.mode == "rb" else distance
    except Exception:
        return None


def _refuse_lost_data() -> None:
    """Make errors that Python only prints (in threads, exit handlers, destructors) count if they mean lost data."""
    unraisable_hook, thread_hook = sys.unraisablehook, threading.excepthook

    def judge(error: BaseException | None) -> None:
        global _has_lost_data
        is_late = _has_closed_uploads and isinstance(error, ValueError)  # What a closed file says to a write.
        if is_late or (isinstance(error, OSError) and _means_lost_data(error)):
            _has_lost_data = True
            if _is_settled:
                os._exit(EXIT_UNWRITTEN)

    def judge_unraisable(unraisable: Any) -> None:
        unraisable_hook(unraisable)
        judge(unraisable.exc_value)

    def judge_thread(arguments: Any) -> None:
        thread_hook(arguments)
        judge(arguments.exc_value)

    sys.unraisablehook, threading.excepthook = judge_unraisable, judge_thread


def _means_lost_data(error: OSError) -> bool:
    if error.errno == errno.EIO and _has_terminals():
        return False  # Reading from a terminal ends this way when its other end is closed.
    return error.errno in _LOST_DATA


def _has_terminals() -> bool:
    """Whether this process has opened a pseudo-terminal, as for a program that it runs."""
    links = []
    with contextlib.suppress(OSError):
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return any(link.endswith("/ptmx") for link in links)


def _has_destructors() -> bool:
    """Whether the step has left something whose clean-up may matter: an object with a destructor, or a C library."""
    if _libraries_before is None or loaded_so_far() != _libraries_before:
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
    """Whether this is a stream that needs nothing more: closed, or one of the standard ones."""
    if not isinstance(thing, io.IOBase):
        return False
    try:
        return thing.closed or thing.fileno() <= _STANDARD_ERROR
    except (OSError, ValueError):
        return False


def _print_traceback() -> None:
    with contextlib.suppress(Exception):
        traceback.print_exc()


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(_STANDARD_ERROR, f"marin-rules: {text}\n".encode(errors="replace"))
