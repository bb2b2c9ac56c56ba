"""A write that was made and whose answer was lost: a worker knows its own bytes again, on every store."""

import pytest

from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.record import LIFETIME_SECONDS
from support.lease_models.backends import Backend
from support.lease_models.clock import ManualClock, elsewhere
from support.lease_models.holders import held, holder_of
from support.lease_models.unreliable import UnreliableStore


@pytest.mark.parametrize("failure", ["answer lost", "refused"])
def test_our_own_creation_is_recognised(backend: Backend, clock: ManualClock, failure: str) -> None:
    store = UnreliableStore(backend.open_store(), ["ok", failure])
    lease = held(store, clock)
    lease.refresh()
    lease.commit(backend.status_path, b"SUCCESS")
    lease.release()
    assert store.read() is None


@pytest.mark.parametrize("failure", ["answer lost", "refused"])
def test_our_own_takeover_is_recognised(backend: Backend, clock: ManualClock, failure: str) -> None:
    held(backend.open_store(), clock, "alpha")
    store = UnreliableStore(backend.open_store())
    lease = Lease(store, elsewhere("beta"), clock)
    assert lease.try_acquire() is not None
    clock.advance(LIFETIME_SECONDS)
    store.failures = ["ok", failure]
    assert lease.try_acquire() is None
    lease.commit(backend.status_path, b"SUCCESS")


@pytest.mark.parametrize("failure", ["answer lost", "refused"])
def test_our_own_heartbeat_is_recognised(backend: Backend, clock: ManualClock, failure: str) -> None:
    store = UnreliableStore(backend.open_store())
    lease = held(store, clock)
    store.failures = [failure]
    lease.refresh()
    lease.commit(backend.status_path, b"SUCCESS")


@pytest.mark.parametrize("next_call", ["refresh", "commit", "release"])
def test_a_heartbeat_is_recognised_when_the_store_answers_again(
    backend: Backend, clock: ManualClock, next_call: str
) -> None:
    store = UnreliableStore(backend.open_store())
    lease = held(store, clock)
    store.failures = ["answer lost", "not made"]
    with pytest.raises(OSError, match="connection reset"):
        lease.refresh()
    if next_call == "refresh":
        lease.refresh()
        lease.refresh()
    elif next_call == "commit":
        lease.commit(backend.status_path, b"SUCCESS")
        assert backend.read_file(backend.status_path) == b"SUCCESS"
    else:
        lease.release()
        assert store.read() is None


def test_an_acquisition_is_recognised_when_the_store_answers_again(backend: Backend, clock: ManualClock) -> None:
    store = UnreliableStore(backend.open_store(), ["ok", "answer lost", "not made"])
    lease = Lease(store, elsewhere("alpha"), clock)
    with pytest.raises(OSError, match="connection reset"):
        lease.try_acquire()
    assert lease.try_acquire() is None
    assert holder_of(store).epoch == 1
    lease.commit(backend.status_path, b"SUCCESS")


def test_an_error_is_not_a_lost_lease(backend: Backend, clock: ManualClock) -> None:
    store = UnreliableStore(backend.open_store())
    lease = held(store, clock)
    for call in (lease.refresh, lambda: lease.commit(backend.status_path, b"SUCCESS"), lease.release):
        store.failures = ["not made"]
        with pytest.raises(OSError, match="connection reset"):
            call()
        assert lease.record is not None
    lease.refresh()


def test_a_successor_is_not_mistaken_for_our_own_write(backend: Backend, clock: ManualClock) -> None:
    store = UnreliableStore(backend.open_store())
    old = held(store, clock, "alpha")
    new = Lease(backend.open_store(), elsewhere("beta"), clock)
    store.failures = ["answer lost", "not made"]
    with pytest.raises(OSError, match="connection reset"):
        old.refresh()
    assert new.try_acquire() is not None
    clock.advance(LIFETIME_SECONDS)
    assert new.try_acquire() is None
    with pytest.raises(LeaseLostError):
        old.commit(backend.status_path, b"SUCCESS")
    old.release()
    assert holder_of(store) == new.record


def test_a_release_whose_answer_was_lost_may_be_repeated(backend: Backend, clock: ManualClock) -> None:
    store = UnreliableStore(backend.open_store())
    lease = held(store, clock)
    store.failures = ["answer lost"]
    with pytest.raises(OSError, match="connection reset"):
        lease.release()
    successor = held(backend.open_store(), clock, "beta")
    lease.release()
    assert holder_of(store) == successor.record
