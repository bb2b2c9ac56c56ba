"""Leases: one holder at a time, no commit without the lease, no surgery after a death or a lost answer.

All of this holds on every store, and is tested over a store in memory, whose versions are numbers like the
generations of an object store, and over files. `test_lease_files.py` has what only files and processes have.
"""

import contextlib
import functools
import itertools
import json
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_rules.execution.lease import (
    HEARTBEAT_SECONDS,
    LIFETIME_SECONDS,
    UNREADABLE,
    CorruptLeaseError,
    Lease,
    LeaseLostError,
    LeaseRecord,
    LeaseStore,
    LocalLeaseStore,
    Owner,
    Snapshot,
    Version,
    describe,
    lease_path,
)

STATUS = ".executor_status"

DEADLINE = 30.0
"""Seconds after which a test that waits for a process or thread has failed. Not reached when all is well."""


@dataclass
class ManualClock:
    """Time passes only when told to."""

    elapsed: float = 1000.0
    wall: float = 1_700_000_000.0

    def monotonic(self) -> float:
        return self.elapsed

    def time(self) -> float:
        return self.wall

    def advance(self, seconds: float) -> None:
        self.elapsed += seconds
        self.wall += seconds


@dataclass
class MemoryStore:
    """The contract of a lease store in a few lines."""

    data: bytes | None = None
    generation: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    path: str = "memory/.executor_status.lock"

    def read(self) -> Snapshot | None:
        return None if self.data is None else Snapshot(self.data, self.generation)

    def create(self, data: bytes) -> Version | None:
        return self._set(data) if self.data is None else None

    def replace(self, data: bytes, version: Version) -> Version | None:
        return self._set(data) if self._is_at(version) else None

    def delete(self, version: Version) -> bool:
        if not self._is_at(version):
            return False
        self.data = None
        return True

    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        if not self._is_at(version):
            return False
        self.files[path] = data
        return True

    def _is_at(self, version: Version) -> bool:
        return self.data is not None and self.generation == version

    def _set(self, data: bytes) -> int:
        self.data = data
        self.generation += 1
        return self.generation


@dataclass(frozen=True)
class Backend:
    """A kind of store, seen from outside."""

    open_store: Callable[[], LeaseStore]
    """Another door to one and the same lease."""
    status_path: str
    read_file: Callable[[str], bytes | None]
    put_lease: Callable[[bytes], None]
    """Write the lease file behind the back of everybody."""


def memory_backend() -> Backend:
    store = MemoryStore()

    def put(data: bytes) -> None:
        store.data = data
        store.generation += 1

    return Backend(lambda: store, f"memory/{STATUS}", store.files.get, put)


def local_backend(output_path: Path) -> Backend:
    path = lease_path(str(output_path))

    def put(data: bytes) -> None:
        output_path.mkdir(exist_ok=True)
        Path(path).write_bytes(data)

    def read(path: str) -> bytes | None:
        return Path(path).read_bytes() if os.path.exists(path) else None

    return Backend(lambda: LocalLeaseStore(path), str(output_path / STATUS), read, put)


def elsewhere(name: str) -> Owner:
    """A worker on a machine of which nothing can be seen from here."""
    return Owner(f"{name}-7-abcd", host=name, pid=7, user="u", start_ticks=1, boot_id=name, pid_namespace="pid:[1]")


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


@pytest.fixture(params=["memory", "local"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return memory_backend() if request.param == "memory" else local_backend(tmp_path / "step-123456")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


# The contract of a store


def test_a_store_is_created_once(backend: Backend) -> None:
    one, other = backend.open_store(), backend.open_store()
    assert one.read() is None
    version = one.create(b"one")
    assert version is not None
    assert other.create(b"other") is None
    assert other.read() == Snapshot(b"one", version)


def test_a_store_changes_only_at_the_version_given(backend: Backend) -> None:
    one, other = backend.open_store(), backend.open_store()
    first = one.create(b"first")
    assert first is not None
    second = one.replace(b"second", first)
    assert second is not None
    assert second != first

    assert other.replace(b"third", first) is None
    assert not other.delete(first)
    assert not other.commit(first, backend.status_path, b"FAILED")
    assert other.read() == Snapshot(b"second", second)
    assert backend.read_file(backend.status_path) is None

    assert other.commit(second, backend.status_path, b"SUCCESS")
    assert backend.read_file(backend.status_path) == b"SUCCESS"
    assert other.delete(second)


def test_a_deleted_store_takes_only_a_creation(backend: Backend) -> None:
    store = backend.open_store()
    version = store.create(b"one")
    assert version is not None
    assert store.delete(version)
    assert store.read() is None
    assert store.replace(b"two", version) is None
    assert not store.delete(version)
    assert not store.commit(version, backend.status_path, b"SUCCESS")
    assert store.read() is None
    assert backend.read_file(backend.status_path) is None
    assert store.create(b"three") is not None


# The behaviour of a lease


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
        clock.elapsed += HEARTBEAT_SECONDS
        clock.wall += HEARTBEAT_SECONDS if wall_clock_runs else 0
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
    record = json.loads((backend.open_store().read() or Snapshot(b"", 0)).data)
    assert record["worker_id"] == "alpha-7-abcd"
    assert record["timestamp"] == record["since"] == clock.wall
    assert record["epoch"] == 1


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


# Lost answers


@dataclass
class UnreliableStore:
    """Breaks the next call, after or before the change is made."""

    inner: LeaseStore
    failures: list[str] = field(default_factory=list)
    """For each call in turn: `answer lost` (made, then an error), `refused` (made, then told that it was
    not, as by a client that asks twice), `not made` (an error), `ok`."""

    @property
    def path(self) -> str:
        return self.inner.path

    def _call[T](self, change: Callable[[], T], refusal: T) -> T:
        failure = self.failures.pop(0) if self.failures else "ok"
        if failure == "not made":
            raise OSError("connection reset before the request")
        answer = change()
        if failure == "answer lost":
            raise OSError("connection reset before the answer")
        return refusal if failure == "refused" else answer

    def read(self) -> Snapshot | None:
        return self._call(self.inner.read, None)

    def create(self, data: bytes) -> Version | None:
        return self._call(lambda: self.inner.create(data), None)

    def replace(self, data: bytes, version: Version) -> Version | None:
        return self._call(lambda: self.inner.replace(data, version), None)

    def delete(self, version: Version) -> bool:
        return self._call(lambda: self.inner.delete(version), False)

    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        return self._call(lambda: self.inner.commit(version, path, data), False)


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


# People


def test_a_record_survives_the_file() -> None:
    record = LeaseRecord.first(Owner.current(), epoch=3, now=1_700_000_000.25)
    assert LeaseRecord.parse(record.to_bytes(), "path") == record
    assert list(json.loads(record.to_bytes()))[:2] == ["worker_id", "timestamp"]


@pytest.mark.parametrize(
    "change",
    [
        {"worker_id": None},
        {"timestamp": "now"},
        {"timestamp": True},
        {"timestamp": float("nan")},
        {"timestamp": 1e300},
        {"epoch": -1},
        {"epoch": 1.5},
        {"epoch": 10**30},
        {"since": -1},
        {"owner": []},
        {"owner": {}},
        {"owner": {"worker_id": "a", "host": "h", "user": "u", "pid": 0}},
        {"owner": {"worker_id": "a", "host": "h", "user": "u", "pid": 1 << 40}},
        {"owner": {"worker_id": "a", "host": "h", "user": "u", "pid": 5, "start_ticks": "x"}},
    ],
)
def test_a_record_with_a_wrong_field_is_no_lease(change: dict[str, object]) -> None:
    fields = {"worker_id": "a", "timestamp": 1.0, "epoch": 1, "since": 1.0, "owner": None} | change
    with pytest.raises(CorruptLeaseError, match="path"):
        LeaseRecord.parse(json.dumps(fields).encode(), "path")


@given(st.binary() | st.dictionaries(st.text(), st.text() | st.none()).map(lambda fields: json.dumps(fields).encode()))
def test_no_content_of_a_lease_escapes(data: bytes) -> None:
    with pytest.raises(CorruptLeaseError):
        LeaseRecord.parse(data, "path")


def test_a_record_may_have_fields_of_a_later_version() -> None:
    fields = {"worker_id": "a", "timestamp": 1, "later": {"x": 1}}
    assert LeaseRecord.parse(json.dumps(fields).encode(), "path") == LeaseRecord("a", 1.0)


def test_describe(monkeypatch: pytest.MonkeyPatch) -> None:
    noon = 1_700_049_600.0  # 2023-11-15 12:00:00 UTC
    monkeypatch.setattr(time, "localtime", time.gmtime)
    record = LeaseRecord("h-123-ab", noon + 90, epoch=2, since=noon + 90, owner=replace(elsewhere("h"), pid=123))
    assert describe(record, noon + 102) == (
        "h-123-ab (pid 123 on h, user u), running since 12:01:30, last heartbeat 12 s ago"
    )
    assert "running since 2023-11-15 12:01:30, last heartbeat 24 h ago" in describe(record, noon + 86_500)
    assert describe(LeaseRecord("marin-1", noon), noon + 600) == "marin-1, last heartbeat 10 min ago"
    assert describe(LeaseRecord("marin-1", noon), noon - 60) == "marin-1, last heartbeat 0 s ago"
    assert "cannot be read" in describe(UNREADABLE, noon)


# Every interleaving of two workers


@dataclass
class Worker:
    """Does one thing at a time: takes the lease, looks at the status, beats, commits, gives the lease
    back."""

    lease: Lease
    store: MemoryStore
    commits: list[str]
    must_commit: bool = False

    @property
    def worker_id(self) -> str:
        assert self.lease.record is not None
        return self.lease.record.worker_id

    def step(self, action: str) -> None:
        with contextlib.suppress(LeaseLostError):
            if action == "acquire":
                if self.lease.record is None and self.lease.try_acquire() is None:
                    self.must_commit = STATUS not in self.store.files
            elif self.lease.record is not None:
                self._step_as_holder(action)

    def _step_as_holder(self, action: str) -> None:
        if action == "refresh":
            self.lease.refresh()
        elif action == "release":
            self.lease.release()
        elif self.must_commit:
            self.lease.commit(STATUS, b"SUCCESS")
            self.commits.append(self.worker_id)
            self.must_commit = False


class UnfencedStore(MemoryStore):
    """A store that is wrong: it commits for everybody."""

    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        self.files[path] = data
        return True


SCRIPT = ("acquire", "acquire", "refresh", "commit", "release")


def interleavings() -> Iterator[str]:
    """Every order of the scripts of `a` and `b` and two expiries `x`, as who is next. Without loss, `a`
    begins."""
    length = 2 * len(SCRIPT) + 2
    for expiries in itertools.combinations(range(1, length), 2):
        others = set(range(1, length)).difference(expiries)
        for places_of_a in itertools.combinations(sorted(others), len(SCRIPT) - 1):
            order = dict.fromkeys(range(length), "b")
            order |= dict.fromkeys(expiries, "x") | dict.fromkeys((0, *places_of_a), "a")
            yield "".join(order.values())


def commits_in(order: str, store: MemoryStore) -> list[str]:
    clock, commits = ManualClock(), list[str]()
    workers = {name: Worker(Lease(store, elsewhere(name), clock), store, commits) for name in "ab"}
    scripts = {name: iter(SCRIPT) for name in "ab"}
    for name in order:
        if name == "x":
            clock.advance(LIFETIME_SECONDS)
        else:
            workers[name].step(next(scripts[name]))
    return commits


def test_in_every_interleaving_of_two_workers_one_commits_once() -> None:
    seen = {tuple(commits_in(order, MemoryStore())) for order in interleavings()}
    assert seen == {("a-7-abcd",), ("b-7-abcd",)}


def test_the_interleavings_would_find_a_store_without_a_fence() -> None:
    assert any(len(commits_in(order, UnfencedStore())) > 1 for order in interleavings())


class Turns:
    """Runs threads one at a time, each up to its next call of the store, in an order given beforehand."""

    def __init__(self, programs: list[Callable[[], None]]) -> None:
        self._go = [threading.Semaphore(0) for _ in programs]
        self._arrived = threading.Semaphore(0)
        self._running = [True] * len(programs)
        self._index = threading.local()
        self._threads = [
            threading.Thread(target=self._run, args=(index, program)) for index, program in enumerate(programs)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, index: int, program: Callable[[], None]) -> None:
        self._index.value = index
        self.pause()
        try:
            program()
        finally:
            self._running[index] = False
            self._arrived.release()

    def pause(self) -> None:
        """Called by a thread: wait for my turn."""
        self._arrived.release()
        assert self._go[self._index.value].acquire(timeout=DEADLINE)

    def play(self, order: tuple[int, ...]) -> None:
        """Give turns in this order, and then in rotation until all have ended."""
        for _ in self._threads:
            assert self._arrived.acquire(timeout=DEADLINE)
        for index in itertools.chain(order, itertools.cycle(range(len(self._threads)))):
            if not any(self._running):
                break
            if self._running[index]:
                self._go[index].release()
                assert self._arrived.acquire(timeout=DEADLINE)
        for thread in self._threads:
            thread.join()


@dataclass
class PausingStore(MemoryStore):
    """Lets the other thread run before each call."""

    pause: Callable[[], None] = lambda: None

    def read(self) -> Snapshot | None:
        self.pause()
        return super().read()

    def create(self, data: bytes) -> Version | None:
        self.pause()
        return super().create(data)

    def replace(self, data: bytes, version: Version) -> Version | None:
        self.pause()
        return super().replace(data, version)

    def delete(self, version: Version) -> bool:
        self.pause()
        return super().delete(version)

    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        self.pause()
        return super().commit(version, path, data)


def run_through(worker: Worker) -> None:
    for action in ("acquire", "commit", "refresh", "release"):
        worker.step(action)


@pytest.mark.parametrize("found", ["nothing", "a dead lease", "a lease of one who wakes up"])
def test_in_every_interleaving_of_single_calls_one_commits_once(found: str) -> None:
    """Here a step is a call of the store, not an action: reading a lease and swapping it are two."""
    for order in itertools.product((0, 1), repeat=8):
        clock, store, commits = ManualClock(), PausingStore(), list[str]()
        workers = [Worker(Lease(store, elsewhere(name), clock), store, commits) for name in "ab"]
        if found == "a dead lease":
            held(store, clock, "dead")
        elif found == "a lease of one who wakes up":
            workers[0].lease = held(store, clock, "sleeper")
            workers[0].must_commit = True
        if found != "nothing":
            for worker in workers:
                worker.step("acquire")
            clock.advance(LIFETIME_SECONDS)
        turns = Turns([functools.partial(run_through, worker) for worker in workers])
        store.pause = turns.pause
        turns.play(order)
        assert len(commits) == 1, (order, commits)
        assert store.data is None, order
