"""Leases: one holder at a time, no commit without the lease, no surgery after a death; on every store."""

import json
import pickle
from dataclasses import replace

import pytest

from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import LIFETIME_SECONDS, UNREADABLE, LeaseRecord
from marin_rules.storage.leases.store import ChangedError, Snapshot
from support.lease_models.backends import Backend
from support.lease_models.clock import ManualClock, elsewhere
from support.lease_models.holders import after_takeover, held, holder_of


def test_one_holds_and_the_other_is_told_who(backend: Backend, clock: ManualClock) -> None:
    alpha = held(backend.open_store(), clock, "alpha")
    beta = Lease(backend.open_store(), elsewhere("beta"), clock)
    holder = beta.try_acquire()
    assert holder is not None
    assert (holder.worker_id, holder.epoch, holder.since) == ("alpha-7-abcd", 1, clock.wall)
    assert holder == alpha.record
    assert holder.owner == elsewhere("alpha")
    assert beta.record is None


def test_acquiring_what_one_holds_changes_nothing(backend: Backend, clock: ManualClock) -> None:
    store = backend.open_store()
    lease = held(store, clock)
    before = store.read()
    assert lease.try_acquire() is None
    assert store.read() == before


def test_a_released_lease_is_free(backend: Backend, clock: ManualClock) -> None:
    store = backend.open_store()
    alpha = held(store, clock, "alpha")
    alpha.release()
    assert store.read() is None
    assert alpha.record is None
    held(store, clock, "beta")
    alpha.release()
    assert holder_of(store).worker_id == "beta-7-abcd"


def test_a_lease_is_stale_after_its_lifetime_and_not_before(backend: Backend, clock: ManualClock) -> None:
    held(backend.open_store(), clock, "alpha")
    beta = Lease(backend.open_store(), elsewhere("beta"), clock)
    # However old the lease is, we have watched it only from now on.
    clock.advance(10 * LIFETIME_SECONDS)
    assert beta.try_acquire() is not None
    clock.advance(LIFETIME_SECONDS - 0.1)
    assert beta.try_acquire() is not None
    clock.advance(0.1)
    assert beta.try_acquire() is None
    assert holder_of(backend.open_store()).worker_id == "beta-7-abcd"
    assert holder_of(backend.open_store()).epoch == 2


@pytest.mark.parametrize("wall_clock_runs", [True, False])
def test_a_refreshed_lease_is_never_stale(backend: Backend, clock: ManualClock, wall_clock_runs: bool) -> None:
    alpha = held(backend.open_store(), clock, "alpha")
    since = clock.wall
    beta = Lease(backend.open_store(), elsewhere("beta"), clock)
    for _ in range(10):
        clock.elapsed += LIFETIME_SECONDS / 3
        clock.wall += LIFETIME_SECONDS / 3 if wall_clock_runs else 0
        alpha.refresh()
        holder = beta.try_acquire()
        assert holder is not None
        assert (holder.timestamp, holder.since, holder.epoch) == (clock.wall, since, 1)


@pytest.mark.parametrize("timestamp", [0, 1e9, 1.7e9 - 91, 4e9])
def test_foreign_clocks_decide_nothing(backend: Backend, clock: ManualClock, timestamp: float) -> None:
    backend.put_lease(json.dumps({"worker_id": "marin", "timestamp": timestamp}).encode())
    lease = Lease(backend.open_store(), elsewhere("alpha"), clock)
    assert lease.try_acquire() is not None
    clock.advance(LIFETIME_SECONDS - 1)
    assert lease.try_acquire() is not None
    clock.advance(1)
    assert lease.try_acquire() is None


def test_of_two_that_see_a_stale_lease_one_takes_it(backend: Backend, clock: ManualClock) -> None:
    held(backend.open_store(), clock, "alpha")
    beta, gamma = (Lease(backend.open_store(), elsewhere(name), clock) for name in ("beta", "gamma"))
    assert beta.try_acquire() is not None
    assert gamma.try_acquire() is not None
    clock.advance(LIFETIME_SECONDS)
    assert beta.try_acquire() is None
    holder = gamma.try_acquire()
    assert holder is not None
    assert holder.worker_id == "beta-7-abcd"


def test_a_worker_that_lost_its_lease_cannot_refresh_it(backend: Backend, clock: ManualClock) -> None:
    old, new = after_takeover(backend, clock)
    for _ in range(2):
        with pytest.raises(LeaseLostError, match=r"alpha-7-abcd does not hold.*beta-7-abcd") as caught:
            old.refresh()
        assert caught.value.holder == new.record
        assert old.record is None
    new.refresh()


def test_a_worker_that_lost_its_lease_cannot_commit(backend: Backend, clock: ManualClock) -> None:
    old, new = after_takeover(backend, clock)
    new.commit(backend.status_path, b"RUNNING")
    with pytest.raises(LeaseLostError, match="beta-7-abcd"):
        old.commit(backend.status_path, b"SUCCESS")
    assert backend.read_file(backend.status_path) == b"RUNNING"
    new.commit(backend.status_path, b"FAILED")
    assert backend.read_file(backend.status_path) == b"FAILED"


def test_a_late_release_leaves_the_lease_of_the_successor(backend: Backend, clock: ManualClock) -> None:
    old, new = after_takeover(backend, clock)
    old.release()
    assert holder_of(backend.open_store()) == new.record
    new.refresh()


def test_a_worker_that_lost_its_lease_may_wait_for_it_again(backend: Backend, clock: ManualClock) -> None:
    old, new = after_takeover(backend, clock)
    old.release()
    assert old.try_acquire() == new.record
    clock.advance(LIFETIME_SECONDS)
    assert old.try_acquire() is None
    assert holder_of(backend.open_store()).epoch == 3


def test_without_a_lease_nothing_can_be_done(backend: Backend, clock: ManualClock) -> None:
    lease = Lease(backend.open_store(), elsewhere("alpha"), clock)
    with pytest.raises(LeaseLostError):
        lease.refresh()
    with pytest.raises(LeaseLostError):
        lease.commit(backend.status_path, b"SUCCESS")
    lease.release()
    assert backend.read_file(backend.status_path) is None
    assert backend.open_store().read() is None


@pytest.mark.parametrize("garbage", [b"", b"\0" * 100, b'{"worker_id": "a", "timest', b"[" * 100_000, b"\xff", b"null"])
def test_a_garbage_lease_is_waited_for_and_taken_over(backend: Backend, clock: ManualClock, garbage: bytes) -> None:
    backend.put_lease(garbage)
    lease = Lease(backend.open_store(), elsewhere("alpha"), clock)
    assert lease.try_acquire() == UNREADABLE
    clock.advance(LIFETIME_SECONDS - 1)
    assert lease.try_acquire() == UNREADABLE
    clock.advance(1)
    assert lease.try_acquire() is None
    lease.commit(backend.status_path, b"SUCCESS")
    lease.release()
    assert backend.open_store().read() is None


def test_garbage_put_over_our_lease_is_a_lost_lease(backend: Backend, clock: ManualClock) -> None:
    lease = held(backend.open_store(), clock)
    backend.put_lease(b"garbage")
    with pytest.raises(LeaseLostError, match="unknown worker"):
        lease.commit(backend.status_path, b"SUCCESS")
    assert backend.read_file(backend.status_path) is None


def test_marins_lease_is_understood(backend: Backend, clock: ManualClock) -> None:
    backend.put_lease(json.dumps({"worker_id": "host-1403", "timestamp": 1_700_000_000.5}).encode())
    lease = Lease(backend.open_store(), elsewhere("alpha"), clock)
    assert lease.try_acquire() == LeaseRecord("host-1403", 1_700_000_000.5, epoch=0)
    clock.advance(LIFETIME_SECONDS)
    assert lease.try_acquire() is None
    record = LeaseRecord.parse((backend.open_store().read() or Snapshot(b"", 0)).data, "the lease")
    assert record.worker_id == "alpha-7-abcd"
    assert record.timestamp == record.since == clock.wall
    assert record.epoch == 1


def test_two_leases_of_one_owner_exclude_each_other(backend: Backend, clock: ManualClock) -> None:
    owner = elsewhere("alpha")
    one, other = (Lease(backend.open_store(), owner, clock) for _ in range(2))
    assert one.try_acquire() is None
    assert other.try_acquire() is not None
    with pytest.raises(LeaseLostError):
        other.commit(backend.status_path, b"SUCCESS")


def test_a_lost_lease_can_be_told_to_another_process(backend: Backend, clock: ManualClock) -> None:
    old, new = after_takeover(backend, clock)
    with pytest.raises(LeaseLostError) as caught:
        old.refresh()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.holder == new.record


def test_the_holders_own_lifetime_counts_not_the_watchers(backend: Backend, clock: ManualClock) -> None:
    long = Lease(backend.open_store(), elsewhere("alpha"), clock, lifetime=600.0)
    assert long.try_acquire() is None
    short = Lease(backend.open_store(), elsewhere("beta"), clock, lifetime=5.0)
    assert short.try_acquire() is not None
    clock.advance(599.0)
    assert short.try_acquire() is not None
    clock.advance(1.0)
    assert short.try_acquire() is None
    watcher = Lease(backend.open_store(), elsewhere("gamma"), clock, lifetime=600.0)
    assert watcher.try_acquire() is not None
    clock.advance(5.0)
    assert watcher.try_acquire() is None


def test_the_lease_of_a_process_that_is_dead_here_is_taken_at_once(backend: Backend, clock: ManualClock) -> None:
    living = Owner.current()
    assert living.start_ticks is not None
    dead = replace(living, worker_id="dead-7-abcd", start_ticks=living.start_ticks - 1)
    assert Lease(backend.open_store(), dead, clock).try_acquire() is None
    alpha = Lease(backend.open_store(), living, clock)
    assert alpha.try_acquire() is None
    assert holder_of(backend.open_store()).epoch == 2
    assert Lease(backend.open_store(), elsewhere("beta"), clock).try_acquire() == alpha.record


def test_refreshed_at_is_when_the_write_began(backend: Backend, clock: ManualClock) -> None:
    lease = held(backend.open_store(), clock)
    assert lease.refreshed_at == clock.elapsed
    clock.advance(7.0)
    lease.commit(backend.status_path, b"RUNNING")
    assert lease.refreshed_at == clock.elapsed - 7.0
    lease.refresh()
    assert lease.refreshed_at == clock.elapsed


def test_a_commit_over_a_change_of_somebody_else_asks_to_read_again(
    comparing_backend: Backend, clock: ManualClock
) -> None:
    lease = held(comparing_backend.open_store(), clock)
    assert lease.read(comparing_backend.status_path) is None
    comparing_backend.put_file(comparing_backend.status_path, b"SUCCESS")
    with pytest.raises(ChangedError):
        lease.commit(comparing_backend.status_path, b"RUNNING")
    assert lease.record is not None
    assert lease.read(comparing_backend.status_path) == b"SUCCESS"
    assert comparing_backend.read_file(comparing_backend.status_path) == b"SUCCESS"


def test_overwrite_writes_over_the_late_write_of_a_predecessor(backend: Backend, clock: ManualClock) -> None:
    lease = held(backend.open_store(), clock)
    lease.overwrite(backend.status_path, b"one")
    backend.put_file(backend.status_path, b"late")
    lease.overwrite(backend.status_path, b"two")
    assert backend.read_file(backend.status_path) == b"two"


def test_overwrite_is_fenced_like_a_commit(backend: Backend, clock: ManualClock) -> None:
    old, new = after_takeover(backend, clock)
    new.commit(backend.status_path, b"RUNNING")
    with pytest.raises(LeaseLostError, match="beta-7-abcd"):
        old.overwrite(backend.status_path, b"SUCCESS")
    assert backend.read_file(backend.status_path) == b"RUNNING"
