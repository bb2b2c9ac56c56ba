"""Flushes the files of a folder to disk, so that they survive a machine that goes down.

What was written and closed is only in memory for up to half a minute. Anything that declares a folder complete waits
for it first. Objects in a store are the store's responsibility.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from itertools import islice

from marin_rules.urls import is_url

_FEW = 64
"""Up to this many files are flushed one by one. Beyond that, one call flushes the whole file system, including what
others have written."""

_CANNOT = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
"""The answer of file systems that cannot flush folders."""

_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
"""The answer for a file that something still running has removed or replaced."""


def flush_folder(path: str, *, leave_out: str) -> None:
    """Flush the folder's contents, except entries directly in it whose names begin with `leave_out`.

    Links lead elsewhere, and are not followed. An `OSError` says that something may be lost.
    """
    if is_url(path):
        return
    try:
        found = list(islice(_below(path, leave_out), _FEW + 1))
        if len(found) <= _FEW:
            _flush_each(found)
            return
    except PermissionError:  # Written, and then made unreadable.
        pass
    try:
        _flush_file_system(path)
    except OSError as error:
        # Some data was lost since the last flush, perhaps other people's, long ago: ask about each file of ours.
        try:
            _flush_each(_below(path, leave_out))
        except PermissionError:
            raise error from None


def _below(path: str, leave_out: str) -> Iterator[str]:
    """Files and folders, and `path` itself if there are any. Lazy: there may be millions, and each task of a step lists
    those of all."""
    pending = [path]
    while pending:
        folder = pending.pop()
        is_empty = True
        with _unless_gone(), os.scandir(folder) as entries:
            for entry in entries:
                if folder == path and entry.name.startswith(leave_out):
                    continue
                is_empty = False
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    yield entry.path
        if folder != path or not is_empty:
            yield folder


def _flush_each(paths: Iterable[str]) -> None:
    for path in paths:
        with _unless_gone():
            _flush(path)


@contextlib.contextmanager
def _unless_gone() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _GONE:
            raise


def _flush(path: str) -> None:
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT:
            error.filename = path
            raise
    finally:
        os.close(descriptor)


def _flush_file_system(path: str) -> None:
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:  # Only Linux has it.
        os.sync()
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # The folder itself was made unreadable.
        os.sync()
        return
    try:
        if syncfs(descriptor) and ctypes.get_errno() not in _CANNOT:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    finally:
        os.close(descriptor)
