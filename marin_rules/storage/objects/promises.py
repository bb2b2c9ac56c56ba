"""Whether a store keeps the promises that leases depend on: tested once per bucket, before its first lease.

Services that speak S3 differ in how they treat `If-Match` and `If-None-Match`. One that ignores them silently lets two
workers hold one lease. So a small object is created, replaced and deleted beside the lease, each time also in a way
that must be refused. This shows conditions that are ignored; it cannot show conditions that race.

A good result is remembered for the process, and for a week in the user's state folder. A bad one is not, so that a
repaired store is noticed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import posixpath
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from marin_rules.settings.user_folders import state_folder
from marin_rules.storage.explain import StorageError
from marin_rules.storage.files import TEMPORARY_PREFIX, read_bytes, write_atomic
from marin_rules.storage.objects.open import open_objects
from marin_rules.storage.objects.store import ObjectStore
from marin_rules.storage.patience import patiently
from marin_rules.urls import bucket_root

ADVISORY_VARIABLE = "MARIN_ADVISORY_LEASES"
"""Set to 1: continue if a store ignores conditions, as on any store that has none."""

_REMEMBERED_SECONDS = 7 * 86400.0


@dataclass(frozen=True)
class Promises:
    """Which conditions a store respects."""

    creates: bool = True
    """An object that exists is not created again (`If-None-Match: *`)."""

    replaces: bool = True
    """An object at another version is not replaced (`If-Match`)."""

    accepts: bool = True
    """An object at the expected version is replaced."""

    deletes: bool = True
    """An object at another version is not deleted (`If-Match` on DELETE)."""

    @property
    def broken(self) -> str:
        """What is wrong for leases, in words; empty when nothing is. They can do without conditional deletion."""
        if not self.accepts:
            return "it refuses conditional writes (If-Match) of an object that is at the expected version"
        ignored = [
            name for name, is_kept in (("If-None-Match", self.creates), ("If-Match", self.replaces)) if not is_kept
        ]
        return f"it ignores {' and '.join(ignored)}" if ignored else ""


_known: dict[str, Promises] = {}
"""Cached answers: each bucket is tested once."""


def require_promises(url: str, say: Callable[[str], None] = lambda text: None) -> Promises:
    """What the store of a lease at `url` promises; `StorageError` if that is too little, unless the variable accepts
    it."""
    promises = _promises(url)
    if not promises.broken:
        return promises
    bucket = bucket_root(url)
    if promises.accepts and os.environ.get(ADVISORY_VARIABLE) == "1":
        say(
            f"leases in {bucket} are advisory ({ADVISORY_VARIABLE}=1): its store does not handle conditional writes as"
            f" S3 does: {promises.broken}. Two workers that take a step at the same moment may both run it."
        )
        return promises
    otherwise = f", or set {ADVISORY_VARIABLE}=1 if two runs never use it at the same time" if promises.accepts else ""
    raise StorageError(
        errno.ENOTSUP,
        f"cannot keep leases in {bucket}: its store does not handle conditional writes as S3 does: {promises.broken}."
        f" Use another store (docs/stores.md lists some){otherwise}.",
        url,
    )


def _promises(url: str) -> Promises:
    objects = open_objects(url)
    place = f"{objects.service} {bucket_root(url)}"
    if place not in _known:
        _known[place] = _remembered(place) or _ask(url, place)
        if _known[place].broken:
            return _known.pop(place)
    return _known[place]


def _ask(url: str, place: str) -> Promises:
    promises = patiently(lambda: probe(open_objects(url), posixpath.dirname(url)))
    if promises != Promises():
        # One answer that was lost and requested again must not condemn a store.
        promises = patiently(lambda: probe(open_objects(url), posixpath.dirname(url)))
    if not promises.broken:
        document = {"place": place, "asked": time.time(), "promises": asdict(promises)}
        with contextlib.suppress(OSError):  # It only saves requests.
            write_atomic(_path(place), json.dumps(document).encode())
    return promises


def probe(objects: ObjectStore, folder: str) -> Promises:
    """Test a store by changing one small object in this folder, which is removed at the end."""
    url = f"{folder}/{TEMPORARY_PREFIX}probe-{secrets.token_hex(8)}"
    try:
        return _probe(objects, url)
    finally:
        with contextlib.suppress(OSError):
            left = objects.read(url)
            if left is not None:
                objects.delete(url, left.version)


def _probe(objects: ObjectStore, url: str) -> Promises:
    objects.write(url, b"probe: first", None)
    creates = objects.write(url, b"probe: must not be created", None) is None
    before = objects.read(url)
    if before is None:
        return Promises(creates=creates, accepts=False)
    second = b"probe: second"
    written = objects.write(url, second, before.version)
    after = objects.read(url)
    # An answer that was lost and requested again looks like a refusal: the content decides.
    if written is None and (after is None or after.data != second):
        return Promises(creates=creates, accepts=False)
    replaces = objects.write(url, b"probe: must not be replaced", before.version) is None
    deletes = not objects.delete(url, before.version)
    return Promises(creates=creates, replaces=replaces, deletes=deletes)


def _remembered(place: str) -> Promises | None:
    try:
        document = json.loads(read_bytes(_path(place)) or b"{}")
        if document.get("place") == place and 0 <= time.time() - document["asked"] < _REMEMBERED_SECONDS:
            return Promises(**document["promises"])
    except (OSError, ValueError, TypeError, KeyError):
        pass  # It is asked again.
    return None


def _path(place: str) -> str:
    return os.path.join(state_folder(), "stores", f"{hashlib.sha256(place.encode()).hexdigest()[:24]}.json")
