"""Leases in the states that tests begin with."""

from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.record import LIFETIME_SECONDS, LeaseRecord
from marin_rules.storage.leases.store import LeaseStore
from support.lease_models.backends import Backend
from support.lease_models.clock import ManualClock, elsewhere


def held(store: LeaseStore, clock: ManualClock, name: str = "alpha") -> Lease:
    lease = Lease(store, elsewhere(name), clock)
    assert lease.try_acquire() is None
    return lease


def holder_of(store: LeaseStore) -> LeaseRecord:
    snapshot = store.read()
    assert snapshot is not None
    return LeaseRecord.parse(snapshot.data, store.path)


def after_takeover(backend: Backend, clock: ManualClock) -> tuple[Lease, Lease]:
    """A worker that lost its lease without knowing, and its successor."""
    old = held(backend.open_store(), clock, "alpha")
    new = Lease(backend.open_store(), elsewhere("beta"), clock)
    assert new.try_acquire() is not None
    clock.advance(LIFETIME_SECONDS)
    assert new.try_acquire() is None
    return old, new
