"""Copying data to the prefix: each file is copied once, by one worker, and charged before its first byte moves.

The charge is the exact size of the files that are copied; moving data inside a region costs nothing and is not
charged. A copy that fails is refunded, and leaves nothing that could be mistaken for the file.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Iterable, Sequence

from marin_rules.storage.budget import Receipt, charge
from marin_rules.storage.explain import explained_store_errors
from marin_rules.storage.leases.heartbeat import Heartbeat
from marin_rules.storage.leases.lease import LeaseLostError
from marin_rules.storage.mirror.concurrency import each, stop_if_asked
from marin_rules.storage.mirror.paths import SCHEME
from marin_rules.storage.mirror.places import Place, home, is_free
from marin_rules.storage.mirror.progress import Progress
from marin_rules.storage.mirror.rewrites import can_rewrite, rewrite_all
from marin_rules.storage.mirror.rights import right_to_copy_file, right_to_copy_files_of
from marin_rules.storage.mirror.search import Found, look_at, look_elsewhere
from marin_rules.storage.mirror.streams import remove_leftovers, stream_all

_DIRECTORIES_AT_ONCE = 8
_TRIES = 3
"""A lease is lost when its holder stood still for longer than its lifetime; then it waits for its successor."""


def bring(path: str) -> None:
    """Copy a file that is not at home. `FileNotFoundError` if it is nowhere, `BudgetError` if it is too expensive."""
    found = look_elsewhere(path)
    if not found.is_file:
        raise IsADirectoryError(f"{SCHEME}{path} is a directory: open a file below it")
    copy_one(found)


def copy_one(found: Found) -> None:
    """Copy a file, or wait until somebody else has done it."""
    here = home()
    for attempt in range(_TRIES):
        try:
            with right_to_copy_file(here, found.path) as heartbeat:
                if look_at(here, found.path) is None:
                    _copy([found], here, heartbeat)
                return
        except LeaseLostError:
            if attempt + 1 == _TRIES:
                raise


def copy_many(files: Iterable[Found]) -> None:
    """Copy files that are not at home, concurrently, under one lease for each directory."""
    directories: dict[str, list[Found]] = {}
    for found in files:
        directories.setdefault(posixpath.dirname(found.path), []).append(found)
    each(directories.values(), _copy_directory, at_once=_DIRECTORIES_AT_ONCE)


def _copy_directory(files: Sequence[Found]) -> None:
    if len(files) == 1:
        return copy_one(files[0])
    here = home()
    directory = posixpath.dirname(files[0].path)
    for attempt in range(_TRIES):
        try:
            with right_to_copy_files_of(here, directory) as (heartbeat, others):
                left = [found for found in files if found.path in others]
                present = _names_in(here, directory)
                mine = [found for found in files if found.path not in others and found.path not in present]
                _copy(mine, here, heartbeat)
            break
        except LeaseLostError:
            if attempt + 1 == _TRIES:
                raise
    for found in left:
        copy_one(found)


def _copy(files: Sequence[Found], here: Place, heartbeat: Heartbeat) -> None:
    """Copy files that nobody else copies."""
    by_source: dict[Place, list[Found]] = {}
    for found in files:
        by_source.setdefault(found.place, []).append(found)
    for source, batch in by_source.items():
        _copy_batch(batch, source, here, heartbeat)


def _copy_batch(batch: Sequence[Found], source: Place, here: Place, heartbeat: Heartbeat) -> None:
    total = sum(found.size for found in batch)
    what = batch[0].url if len(batch) == 1 else f"{len(batch)} files of {source.url(posixpath.dirname(batch[0].path))}"
    receipt = None if is_free(source, here) else _charge(total, what, source, here)
    moved = _Moved()
    try:
        remove_leftovers(batch, here)
        with Progress(what, total, source.region(), here.region()) as progress:
            watch = _Watch(heartbeat, progress, moved)
            if can_rewrite(source, here):
                rewrite_all(batch, here, watch)
            else:
                stream_all(batch, here, watch)
    except BaseException:
        if receipt is not None:
            receipt.settle(moved.size)
        raise


def _charge(total: int, what: str, source: Place, here: Place) -> Receipt:
    return charge(total, what=what, source=source.region(), target=here.region())


class _Moved:
    """The bytes of the files that are complete."""

    def __init__(self) -> None:
        self.size = 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        with self._lock:
            self.size += size


class _Watch:
    """Stops a copy whose lease is lost, or that nobody waits for any more, and counts."""

    def __init__(self, heartbeat: Heartbeat, progress: Progress, moved: _Moved) -> None:
        self._heartbeat = heartbeat
        self.advance = progress.advance
        self._moved = moved

    def check(self) -> None:
        self._heartbeat.check()
        stop_if_asked()

    def finish(self, found: Found) -> None:
        self._moved.add(found.size)


def _names_in(here: Place, directory: str) -> set[str]:
    with explained_store_errors("list", here.url(directory)):
        try:
            listing = here.filesystem().ls(here.key(directory), detail=False)
        except FileNotFoundError:
            return set()
    return {here.relative(name) for name in listing}
