"""A lease on a POSIX file system, local or shared.

- The lease file is never written in place. It is linked (created), renamed over (replaced) or unlinked
  (deleted), so that a reader sees a whole record or none, and each change makes a new inode.
- Creating is `link(2)`: it fails while the file is there.
- Every other change is made under an exclusive `flock` on the inode at the path. A process that waited for the lock on
  an inode that was replaced meanwhile has locked nothing, notices that, and starts again with the new one. While the
  inode at the path is locked, nobody else can replace or delete the lease, or create it.
- The lock is held for a comparison and one rename, and ends with its process: none is ever left behind. A lock that is
  held for longer belongs to an outsider, and is waited for only so long.
- Nobody may read the lease file who may not write it: to read a file is enough to lock it, and a stranger's lock would
  stop every worker. Users who may not read it still see whose it is, and whether it changes.

The directory may be removed at any time. The lease is then lost, and a worker that did not know cannot
bring the directory back by a commit: the file to commit was waiting in it and went with it.

The file system must have hard links, and locks that every machine sharing it respects.
"""

import contextlib
import errno
import fcntl
import os
import pwd
import time
from collections.abc import Iterator

from marin_rules.storage.explain import StorageError, UnansweredError
from marin_rules.storage.files import (
    explained_errors,
    local_path,
    make_directory,
    read_all,
    read_bytes,
    temporary_beside,
)
from marin_rules.storage.leases.record import LeaseRecord
from marin_rules.storage.leases.store import Snapshot, Version
from marin_rules.storage.regular_files import open_regular
from marin_rules.urls import is_url

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)

_LOCK_SECONDS = 5.0
_LOCK_PAUSE_SECONDS = (0.001, 0.05)
"""How long another process's lock is waited for, and between two tries: workers hold it for less than a millisecond."""

_nothing_when_removed = contextlib.suppress(FileNotFoundError, NotADirectoryError)
"""Leaves a block, with nothing changed, when the directory is removed under it."""


class LocalLeaseStore:
    """A lease file on a POSIX file system. The version of a lease is its bytes."""

    def __init__(self, lease_path: str) -> None:
        if is_url(lease_path):
            raise ValueError(f"{lease_path} is in an object store: a lease there needs another LeaseStore")
        self._path = local_path(lease_path)

    @property
    def path(self) -> str:
        return self._path

    def read(self) -> Snapshot | None:
        try:
            data = read_bytes(self._path)
        except StorageError as error:
            if error.errno not in (errno.EACCES, errno.EPERM):
                raise
            data = self._from_outside()
            if data is None:
                raise
        return None if data is None else Snapshot(data, data)

    def read_whole(self) -> Snapshot | None:
        """The same, while nobody writes in place. Marin's workers do so, and lock the file meanwhile."""
        with explained_errors("read the lease", self._path):
            try:
                descriptor = open_regular(self._path, os.O_RDONLY)
            except (FileNotFoundError, NotADirectoryError):
                return None
            try:
                self._lock(descriptor, fcntl.LOCK_SH)
                data = read_all(descriptor)
            finally:
                _unlock_and_close(descriptor)
        return Snapshot(data, data)

    def create(self, data: bytes) -> Version | None:
        # A file where a directory should be passes through as an error: waiting will not fix it.
        with self._changing("create"), contextlib.suppress(FileNotFoundError):
            make_directory(os.path.dirname(self._path) or ".")
            with self._temporary(data) as temporary:
                if self._link(temporary):
                    return data
        return None

    def replace(self, data: bytes, version: Version) -> Version | None:
        with (
            self._changing("change"),
            _nothing_when_removed,
            self._temporary(data) as temporary,
            self._locked_at(version) as is_unchanged,
        ):
            if is_unchanged:
                os.replace(temporary, self._path)
                return data
        return None

    def delete(self, version: Version) -> bool:
        with self._changing("remove"), _nothing_when_removed, self._locked_at(version) as is_unchanged:
            if is_unchanged:
                os.unlink(self._path)
                return True
        return False

    def read_beside(self, path: str) -> bytes | None:
        return read_bytes(path)

    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        path = local_path(path)
        with (
            explained_errors("write", path),
            _nothing_when_removed,
            # Waits for the disk, and therefore comes before the lock.
            temporary_beside(path, data, durable=durable) as temporary,
            self._locked_at(version) as is_unchanged,
        ):
            if is_unchanged:
                os.replace(temporary, path)
                return True
        return False

    def _from_outside(self) -> bytes | None:
        """A lease that we may not read, as far as its folder shows it: a different one after each heartbeat."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        nonce = f"{found.st_ino}-{found.st_mtime_ns}"
        return LeaseRecord(f"a worker of {_user(found.st_uid)}", found.st_mtime, nonce=nonce).to_bytes()

    def _temporary(self, data: bytes) -> contextlib.AbstractContextManager[str]:
        # Not durable: no lease is held across a power cut, and a damaged one expires like any other.
        mode = _mode_for_writers(os.path.dirname(self._path) or ".")
        return temporary_beside(self._path, data, durable=False, mode=mode)

    def _changing(self, verb: str) -> contextlib.AbstractContextManager[None]:
        return explained_errors(f"{verb} the lease", self._path)

    def _link(self, temporary: str) -> bool:
        try:
            os.link(temporary, self._path)
        except FileExistsError:
            # NFS retries when an answer is lost, and then finds the link that it made itself.
            return _is_same_file(temporary, self._path)
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise self._unfit("hard links", error) from error
            raise
        return True

    @contextlib.contextmanager
    def _locked_at(self, version: Version) -> Iterator[bool]:
        """Shut out all other changes; yields whether the lease is at `version` and so stays at it."""
        descriptor = self._open_locked()
        if descriptor is None:
            yield False
            return
        try:
            yield read_all(descriptor) == version
        finally:
            _unlock_and_close(descriptor)

    def _open_locked(self) -> int | None:
        """A descriptor with the lock on the inode that is at the path, `None` when there is none."""
        while True:
            try:
                # For writing, because NFS grants an exclusive lock on no other descriptor.
                descriptor = open_regular(self._path, os.O_RDWR | os.O_NOFOLLOW)
            except (FileNotFoundError, NotADirectoryError):
                return None
            try:
                if self._lock(descriptor) and _is_same_file(descriptor, self._path):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            _unlock_and_close(descriptor)

    def _lock(self, descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
        give_up, pause = time.monotonic() + _LOCK_SECONDS, _LOCK_PAUSE_SECONDS[0]
        try:
            while not _try_lock(descriptor, kind):
                if time.monotonic() > give_up:
                    raise self._locked_by_another()
                time.sleep(pause)
                pause = min(2 * pause, _LOCK_PAUSE_SECONDS[1])
        except UnansweredError:
            raise
        except OSError as error:
            # How NFS says that the inode is gone: another one is at the path, or none.
            if error.errno == errno.ESTALE:
                return False
            if error.errno in _NO_LOCKS:
                raise self._unfit("file locks", error) from error
            raise
        return True

    def _locked_by_another(self) -> UnansweredError:
        message = (
            f"cannot change the lease {self._path}: another process has had a file lock on it for"
            f" {_LOCK_SECONDS:.0f} s, which no worker does. `fuser -v '{self._path}'` shows which one, on the machine"
            " where it runs: end it."
        )
        return UnansweredError(errno.EAGAIN, message, self._path)

    def _unfit(self, feature: str, error: OSError) -> StorageError:
        message = (
            f"cannot keep a lease at {self._path}: its file system has no {feature} ({error.strerror}). "
            f"Mount it with {feature}, or choose a place on another file system with MARIN_PREFIX."
        )
        return StorageError(error.errno, message, self._path)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _mode_for_writers(folder: str) -> int:
    """The mode of a new file here: reading and writing for those who may write to it, nothing for others."""
    with contextlib.suppress(OSError, AttributeError):
        os.getxattr(folder, "system.posix_acl_default")
        return 0o666  # The folder's ACL says who may do what, and setting a mode would revoke it.
    mode = 0o666 & ~_umask()
    for both in (0o060, 0o006):
        if mode & both != both:
            mode &= ~both
    return mode


def _umask() -> int:
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    # On systems other than Linux it can only be read by setting it.
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _is_same_file(one: str | int, other: str) -> bool:
    try:
        return os.path.samestat(os.stat(one), os.stat(other))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
            return False
        raise


def _unlock_and_close(descriptor: int) -> None:
    # Closing alone would leave the lock with a child that was forked meanwhile and has the descriptor, too.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
