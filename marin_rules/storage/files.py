"""Small control files (status, lease, info): the one seam between this package and the disk.

A path is a local path (also `file:///...`) or a URL such as `gs://bucket/key`. Every function takes both.

- A reader sees an old file, a new file or no file: never a part of one. Locally a file is written beside its
  place and renamed into it; an object store does the same on its own.
- A failed write leaves the old file as it was, and no temporary file.
- An absent file is `None`, never an exception.
- A store that does not answer is asked again, for a minute.
- Only regular files are read: a named pipe or a device in place of one is an error, and nothing waits for it.
- Trouble that a person must clear (permission denied, no space left, read-only) is a `StorageError`: its text
  names the path, the cause and what to do. Any other `OSError` passes through and names the path.

Local paths are handled with plain `os` calls, because a plan reads ten thousand of these files in a row, and
never import fsspec. Files are read and written whole, except logs (`read_part`): large data goes through fsspec
directly, and nothing here appends.
"""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from marin_rules.storage.explain import StorageError, explained_store_errors
from marin_rules.storage.filesystems import open_filesystem
from marin_rules.storage.regular_files import open_regular
from marin_rules.urls import is_url

if TYPE_CHECKING:
    from marin_rules.storage.objects.store import ObjectStore

TEMPORARY_PREFIX = ".marin-rules-"
"""Begins the name of each temporary file, so that one left by a killed machine can be told apart from data."""

LARGEST_BYTES = 1 << 30
"""No control file comes near this size: a larger one was put there by somebody, and would only use up memory."""

_READ_SIZE = 1 << 16

_LOCAL_SCHEMES = ("file", "local")

_CAUSES = {
    errno.EACCES: (
        "permission denied",
        "See who owns it with `ls -ld '{directory}'` and ask for access, or choose a place of your own with "
        "MARIN_PREFIX.",
    ),
    errno.ENOSPC: (
        "no space left on the device",
        "Free some space (`df -h '{directory}'` shows the device) and run again: finished steps are kept.",
    ),
    errno.EDQUOT: (
        "your disk quota is used up",
        "Free some space (`quota -s` shows the limit) and run again: finished steps are kept.",
    ),
    errno.EROFS: (
        "the file system is read-only",
        "Remount it for writing, or choose another place with MARIN_PREFIX.",
    ),
    errno.ENOTDIR: (
        "a part of this path is a file, not a directory",
        "Move that file away, or choose another place with --prefix or MARIN_PREFIX.",
    ),
}
_CAUSES[errno.EEXIST] = _CAUSES[errno.ENOTDIR]
_CAUSES[errno.EPERM] = _CAUSES[errno.EACCES]


def local_path(path: str) -> str:
    """The path that the operating system knows, for a path that is not a URL."""
    scheme, separator, rest = path.partition("://")
    return rest if separator and scheme in _LOCAL_SCHEMES else path


def read_bytes(path: str) -> bytes | None:
    """The content of a file, or `None` when there is none."""
    if is_url(path):
        found = _patiently(lambda objects: objects.read(path), path)
        return None if found is None else found.data
    path = local_path(path)
    with explained_errors("read", path):
        try:
            return _read_local(path)
        except OSError as error:
            # NFS says "stale" when the file was replaced between open and read: the new one is at the path.
            if error.errno != errno.ESTALE:
                raise
            return _read_local(path)


def read_part(path: str, start: int, size: int) -> bytes | None:
    """At most `size` bytes of a file from `start` on, or of its end if `start` is negative; `None` when there is none.

    For logs, which may be larger than memory. A file that is shorter than asked for gives what it has.
    """
    if is_url(path):
        return _patiently(lambda objects: objects.read_part(path, start, size), path)
    path = local_path(path)
    with explained_errors("read", path):
        try:
            with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(start if start >= 0 else max(0, end + start))
                return file.read(size)
        except (FileNotFoundError, NotADirectoryError):
            return None


def write_atomic(path: str, data: bytes, mode: int = 0o666) -> None:
    """Put `data` at `path` as a whole, on the disk before its name, and make missing directories.

    `mode` is what the umask leaves of it, for local files.
    """
    if is_url(path):
        return _patiently(lambda objects: objects.put(path, data), path)
    path = local_path(path)
    with explained_errors("write", path):
        try:
            _write_and_rename(path, data, mode)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            _write_and_rename(path, data, mode)


def write_new(path: str, data: bytes, mode: int = 0o666) -> bool:
    """Put `data` at `path` as a whole unless there is something; whether this very content is there now.

    Atomic, except on stores that know no conditional writes.
    """
    if is_url(path):
        # One that is refused may have been made before, and only the answer was lost.
        return _patiently(lambda objects: objects.write(path, data, None), path) is not None or read_bytes(path) == data
    path = local_path(path)
    make_directory(os.path.dirname(path) or ".")
    with explained_errors("write", path), temporary_beside(path, data, durable=True, mode=mode) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        return True


def file_size(path: str) -> int | None:
    """How many bytes a file has, or `None` when there is no file."""
    if is_url(path):
        return _patiently(lambda objects: objects.size(path), path)
    found = _stat(path)
    return None if found is None else found.st_size


def modified_time(path: str) -> float | None:
    """When the file was last written, in seconds since 1970, or `None` when there is no file."""
    if is_url(path):
        return _patiently(lambda objects: objects.modified(path), path)
    found = _stat(path)
    return None if found is None else found.st_mtime


def make_directory(path: str) -> None:
    """Make a directory and its parents; one that exists is fine. An object store has none, and needs none."""
    if is_url(path):
        return
    path = local_path(path)
    with explained_errors("make the directory", path):
        os.makedirs(path, exist_ok=True)


def check_directory(path: str) -> None:
    """Raise what `make_directory` would, and the first file in it, as far as that can be seen without creating
    anything."""
    if is_url(path):
        return
    path = local_path(path)
    with explained_errors("make the directory", path):
        nearest = _nearest_directory(os.path.join(path, ""))
        if not os.path.isdir(nearest):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if not os.access(nearest, os.W_OK | os.X_OK):
            code = errno.EROFS if os.statvfs(nearest).f_flag & os.ST_RDONLY else errno.EACCES
            raise OSError(code, os.strerror(code), path)


def remove_tree(path: str) -> None:
    """Remove a directory with all that is in it; an absent one is fine."""
    if is_url(path):
        filesystem, key = open_filesystem(path)
        with explained_store_errors("remove", path), contextlib.suppress(FileNotFoundError):
            filesystem.invalidate_cache()
            filesystem.rm(key, recursive=True)
        return
    path = local_path(path)
    with explained_errors("remove", path), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def read_all(descriptor: int) -> bytes:
    """Everything from the descriptor's position to the end of the file."""
    parts = []
    while part := os.read(descriptor, _READ_SIZE):
        parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def temporary_beside(path: str, data: bytes, *, durable: bool, mode: int = 0o666) -> Iterator[str]:
    """A new complete file in the directory of the local `path`, to be renamed or linked to it.

    Whatever still has the temporary name at the end is removed. A name must not survive a power cut that its content
    does not: `durable` waits until the disk has the data. Otherwise the disk is only asked to start writing, so that
    file systems that write data before names (ext4) never come back with an empty file.
    """
    name = f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(8)}.tmp"
    temporary = os.path.join(os.path.dirname(path), name)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            remaining = memoryview(data)
            while remaining:
                remaining = remaining[os.write(descriptor, remaining) :]
            if durable:
                os.fsync(descriptor)
            else:
                _begin_writing(descriptor)
        finally:
            os.close(descriptor)
        yield temporary
    finally:
        # Cleaning up must not hide the error that led here.
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _begin_writing(descriptor: int) -> None:
    """Ask the kernel to start writing a file to disk now rather than in half a minute. Does not wait."""
    with contextlib.suppress(OSError, AttributeError):  # A hint, which not every system accepts.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def explained_errors(action: str, path: str) -> Iterator[None]:
    """Turn the errors of local calls that a person must clear into a `StorageError` about `path`."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        cause = _CAUSES.get(error.errno or 0)
        if cause is None:
            # Errors of calls on a descriptor do not name the file.
            error.filename = error.filename or path
            raise
        reason, advice = cause
        advice = advice.format(directory=_nearest_directory(path))
        message = f"cannot {action} {path}: {reason}. {advice}"
        raise StorageError(error.errno, message, path) from error


def _patiently[Result](action: Callable[["ObjectStore"], Result], url: str) -> Result:
    # Imported here: local runs need none of it.
    from marin_rules.storage.objects.open import open_objects
    from marin_rules.storage.patience import patiently

    return patiently(lambda: action(open_objects(url)))


def _stat(path: str) -> os.stat_result | None:
    path = local_path(path)
    with explained_errors("look at", path):
        try:
            return os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _nearest_directory(path: str) -> str:
    """The lowest directory above `path` that exists: what a person can look at."""
    directory = os.path.dirname(path) or "."
    while not os.path.exists(directory):
        directory = os.path.dirname(directory) or "."
    return directory


def _read_local(path: str) -> bytes | None:
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        if os.fstat(descriptor).st_size > LARGEST_BYTES:
            message = (
                f"cannot read {path}: it is larger than {LARGEST_BYTES >> 20} MB, so this program did not write it."
            )
            raise StorageError(errno.EFBIG, f"{message} Look at it, and move it away.", path)
        return read_all(descriptor)
    finally:
        os.close(descriptor)


def _write_and_rename(path: str, data: bytes, mode: int) -> None:
    with temporary_beside(path, data, durable=True, mode=mode) as temporary:
        os.replace(temporary, path)
