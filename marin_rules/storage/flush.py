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
from collections.abc import Iterator
from itertools import islice

from marin_rules.urls import is_url

_FEW = 64
"""Up to this many files are flushed one by one. Beyond that, one call flushes the whole file system, including what
others have written."""

_CANNOT = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
"""The answer of file systems that cannot flush folders."""


def flush_folder(path: str, *, leave_out: str) -> None:
    """Flush the folder's contents, except entries directly in it whose names begin with `leave_out`.

    Links lead elsewhere, and are not followed. An `OSError` says that something may be lost.
    """
    if is_url(path):
        return
    found = list(islice(_below(path, leave_out), _FEW + 1))
    if len(found) > _FEW:
        _flush_file_system(path)
        return
    try:
        for one in found:
            with contextlib.suppress(FileNotFoundError):  # Something that is still running has removed it.
                _flush(one)
    except PermissionError:  # Written, and then made unreadable.
        _flush_file_system(path)


def _below(path: str, leave_out: str) -> Iterator[str]:
    """Files and folders, and `path` itself if there are any."""
    for folder, folders, files in os.walk(path):
        if folder == path:
            folders[:] = [name for name in folders if not name.startswith(leave_out)]
            files = [name for name in files if not name.startswith(leave_out)]
            if not folders and not files:
                return
        yield from (os.path.join(folder, name) for name in files)
        yield folder


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
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if syncfs(descriptor) and ctypes.get_errno() not in _CANNOT:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    finally:
        os.close(descriptor)
