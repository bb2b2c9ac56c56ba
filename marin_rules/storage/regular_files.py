"""Opens regular files and nothing else, whatever somebody has put in their place.

A named pipe does not cause a wait, a device is not read, and no symbolic link redirects a write. What is opened is
examined through its descriptor, so nobody can replace it in between.
"""

import errno
import os
import stat

from marin_rules.storage.explain import StorageError


class DirectoryInPlaceError(StorageError, IsADirectoryError):
    """A directory is where a file should be."""


_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: str, flags: int, mode: int = 0o666, *, folder: int | None = None) -> int:
    """A descriptor of the regular file at `path`; a `StorageError` that says what is there instead of one.

    `folder` is a descriptor that a relative path starts from.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=folder)
    except OSError as error:
        # A symbolic link, a directory, and a socket or a pipe without a reader, in this order.
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise not_a_file(path, os.stat(path, dir_fd=folder, follow_symlinks=False)) from error
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise not_a_file(path, status)
    return descriptor


def open_to_append(path: str) -> int:
    """A descriptor that adds to the file at `path`, which is made if it is not there.

    Through a link of either kind the text would end up in another file of the user who runs the step.
    """
    descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        message = f"cannot write {path}: it is a hard link to a file that has another name, too. {_ADVICE}"
        raise StorageError(errno.EMLINK, message, path)
    return descriptor


def not_a_file(path: str, status: os.stat_result) -> StorageError:
    """The error about something other than a regular file at `path`."""
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
    message = f"cannot use {path}: it is {kind}, not a file. {_ADVICE}"
    if stat.S_ISDIR(status.st_mode):
        return DirectoryInPlaceError(errno.EISDIR, message, path)
    return StorageError(errno.EINVAL, message, path)


_ADVICE = "See whose it is with `ls -l`, remove it, and run again."
