"""The right to copy: leases at the prefix, so that two workers never copy, and pay for, the same file.

    .mirror/<directory>.<file>.lock   one file is being copied
    .mirror/<directory>.lock          many files of the directory are being copied

(The names are hashes.) This way many readers can copy files of one directory at the same time, while a bulk copy needs
one lease for a directory instead of one for each file. The two kinds see each other, since both first write and then
look: a worker that copies one file gives its lease back while the whole directory is being copied, and waits; a worker
that copies the directory leaves out the files whose leases it finds, and returns for them one by one. Nobody waits
while holding a lease, so nobody waits forever.

A holder that was killed is succeeded at once on its machine, and after the lifetime of a lease elsewhere.
"""

from __future__ import annotations

import contextlib
import logging
import posixpath
import random
import sys
import time
from collections.abc import Iterator

from marin_rules.storage.explain import explained_store_errors
from marin_rules.storage.files import read_bytes
from marin_rules.storage.leases.heartbeat import Heartbeat
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.open import open_lease_at
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import describe
from marin_rules.storage.mirror.paths import FOLDER, SCHEME, short_hash
from marin_rules.storage.mirror.places import Place

logger = logging.getLogger(__name__)

_PAUSE_SECONDS = (0.02, 2.0)
_PATIENCE_SECONDS = 2.0
"""A wait longer than this is reported, with who is waited for."""


@contextlib.contextmanager
def right_to_copy_file(here: Place, path: str) -> Iterator[Heartbeat]:
    """Waits until nobody else copies this file. Call `check` of what it gives while copying."""
    lease = open_lease_at(_lease_url(here, path), Owner.current())
    directory_lease_url = _directory_lease_url(here, posixpath.dirname(path))
    while True:
        _acquire(lease, path)
        try:
            is_free = read_bytes(directory_lease_url) is None
        except BaseException:
            _release(lease, path)
            raise
        if is_free:
            break
        _release(lease, path)
        # Taken and released: so it is free, or was stale.
        directory_lease = open_lease_at(directory_lease_url, Owner.current())
        _acquire(directory_lease, path)
        _release(directory_lease, path)
    with _held(lease, path) as heartbeat:
        yield heartbeat


@contextlib.contextmanager
def right_to_copy_files_of(here: Place, directory: str) -> Iterator[tuple[Heartbeat, FilesInHand]]:
    """Waits until nobody else copies the whole directory; says which of its files others are copying."""
    lease = open_lease_at(_directory_lease_url(here, directory), Owner.current())
    _acquire(lease, directory)
    with _held(lease, directory) as heartbeat:
        yield heartbeat, FilesInHand(here, directory)


class FilesInHand:
    """The files of a directory that are being copied one by one, at this moment."""

    def __init__(self, here: Place, directory: str) -> None:
        filesystem, folder = here.filesystem(), here.url(FOLDER)
        with explained_store_errors("list", folder):
            try:
                names = filesystem.ls(here.key(FOLDER), detail=False)
            except FileNotFoundError:
                names = []
        self._names = {posixpath.basename(name) for name in names}

    def __contains__(self, path: str) -> bool:
        return _lease_name(path) in self._names


def _lease_name(path: str) -> str:
    return f"{short_hash(posixpath.dirname(path))}.{short_hash(path)}.lock"


def _lease_url(here: Place, path: str) -> str:
    return here.url(f"{FOLDER}/{_lease_name(path)}")


def _directory_lease_url(here: Place, directory: str) -> str:
    return here.url(f"{FOLDER}/{short_hash(directory)}.lock")


def _acquire(lease: Lease, path: str) -> None:
    began = time.monotonic()
    pause, has_told = _PAUSE_SECONDS[0], False
    while (holder := lease.try_acquire()) is not None:
        if not has_told and time.monotonic() - began > _PATIENCE_SECONDS:
            has_told = True
            print(f"{SCHEME}{path} is being copied by {describe(holder, time.time())}: waiting", file=sys.stderr)
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 1.5, _PAUSE_SECONDS[1])


@contextlib.contextmanager
def _held(lease: Lease, path: str) -> Iterator[Heartbeat]:
    heartbeat = Heartbeat(lease, wake=lambda: None, say=lambda text: logger.warning("copy of %s %s", path, text))
    heartbeat.start()
    try:
        yield heartbeat
    finally:
        heartbeat.stop()
        _release(lease, path)


def _release(lease: Lease, path: str) -> None:
    try:
        lease.release()
    except OSError as error:
        # It expires on its own; what was copied is there, and must not be lost because of this.
        logger.warning("could not give back the lease on the copy of %s%s: %s", SCHEME, path, error)
