"""The lease at a path, on whatever store the path is, and how long leases live."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from marin_rules.errors import SettingsError
from marin_rules.storage.leases.clock import SystemClock
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.local import LocalLeaseStore
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import LIFETIME_SECONDS, SHORTEST_LIFETIME_SECONDS
from marin_rules.storage.leases.store import LeaseStore
from marin_rules.urls import is_url

if TYPE_CHECKING:
    from marin_rules.storage.objects.store import ObjectStore

LIFETIME_VARIABLE = "MARIN_LEASE_LIFETIME_SECONDS"


def lease_lifetime() -> float:
    """How long a lease of this process stays its own without a heartbeat."""
    text = os.environ.get(LIFETIME_VARIABLE)
    if not text:
        return LIFETIME_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not SHORTEST_LIFETIME_SECONDS <= seconds <= 86400:
        raise SettingsError(f"{LIFETIME_VARIABLE} is {text!r}: write a number of seconds from 1 to 86400, or unset it")
    return seconds


def open_lease_at(lease_path: str, owner: Owner) -> Lease:
    """The lease at this path, not yet acquired."""
    store: LeaseStore
    if is_url(lease_path):
        from marin_rules.storage.leases.beside_objects import LeaseBesideObjects
        from marin_rules.storage.objects.open import open_objects

        store = LeaseBesideObjects(open_objects(lease_path), lease_path, partial(_prepared, lease_path))
    else:
        store = LocalLeaseStore(lease_path)
    return Lease(store, owner, SystemClock(), lifetime=lease_lifetime())


def _prepared(lease_path: str, objects: ObjectStore) -> tuple[ObjectStore, bool]:
    """The store to keep the lease in, once it is known what the store at its address guarantees."""
    from marin_rules.storage.objects.advisory import AdvisoryObjects
    from marin_rules.storage.objects.compared import ComparedObjects
    from marin_rules.storage.objects.promises import require_promises

    if isinstance(objects, AdvisoryObjects):
        return objects, True
    promises = require_promises(lease_path)
    # If conditions are compared here, so are those of a deletion.
    return (ComparedObjects(objects), True) if promises.broken else (objects, promises.deletes)
