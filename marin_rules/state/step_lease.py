"""The lease of a step: where it is, and who has it."""

from __future__ import annotations

import os

from marin_rules.state.status import LEASE_FILE
from marin_rules.storage.files import read_bytes
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.local import LocalLeaseStore
from marin_rules.storage.leases.open import open_lease_at
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import FREE, CorruptLeaseError, LeaseRecord
from marin_rules.urls import is_url


def lease_path(output_path: str) -> str:
    """Where the lease on the step with this output path is."""
    return os.path.join(output_path, LEASE_FILE)


def open_lease(output_path: str, owner: Owner) -> Lease:
    """The lease of the step with this output path, not yet acquired."""
    return open_lease_at(lease_path(output_path), owner)


def peek(output_path: str) -> LeaseRecord | None:
    """Who works on a step, `None` when nobody does; `CorruptLeaseError` when that cannot be told. Only reads."""
    return peek_at(lease_path(output_path))


def peek_at(path: str) -> LeaseRecord | None:
    """The same for the lease at a path: that of a task, for instance."""
    if is_url(path):
        return _parsed(read_bytes(path), path)
    store = LocalLeaseStore(path)
    snapshot = store.read()
    try:
        return _parsed(None if snapshot is None else snapshot.data, path)
    except CorruptLeaseError:  # Perhaps half written: Marin's workers write theirs in place.
        snapshot = store.read_whole()
        return _parsed(None if snapshot is None else snapshot.data, path)


def _parsed(data: bytes | None, path: str) -> LeaseRecord | None:
    return None if data is None or data == FREE else LeaseRecord.parse(data, path)
