"""The right to run a step: a lease that one worker at a time holds, and that no dead worker keeps.

How it is kept, whatever goes wrong:

- One holder. A lease is taken, refreshed, taken over and given back by compare-and-swap on one small file (see
  `store`). Of any number of workers that try the same change, one succeeds.
- A fence. A takeover increments the epoch and changes the file. A worker that lost its lease cannot refresh
  it, cannot delete its successor's, and cannot `commit` a status, which is written only while the lease is
  as this worker left it (on an object store in two steps, see `beside_objects`). It could still write data:
  a worker that gets a `LeaseLostError` has to stop.
- No foreign clocks. A lease is stale when its bytes have not changed for its lifetime by the clock of
  the one who watches, or at once when its holder's process is dead on this machine (see `owner`).
- Lost answers. A write that raised an error may have been made: a worker recognises its own bytes.

Read the status of the step after taking its lease, not before: from then on nobody else can change it.

    lease = open_lease_at(path, Owner.current())
    while (holder := lease.try_acquire()) is not None:
        wait, saying describe(holder, time.time())
    read the status with lease.read(status_path), and commit RUNNING
    run the step, calling lease.refresh() every third of the lifetime
    lease.overwrite(status_path, b"SUCCESS")
    lease.release()

`commit` raises `ChangedError` where another worker, whose lease has just ended, changed the file at the last moment:
read it again, it may say that the step is done. Any other `OSError` says nothing about the
lease: try again. Threads may share a `Lease`, for instance one that refreshes it.
"""

import errno
import threading
from collections.abc import Callable
from dataclasses import dataclass

from marin_rules.errors import MarinRulesError
from marin_rules.storage.explain import UnansweredError
from marin_rules.storage.leases.clock import Clock
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import (
    LIFETIME_SECONDS,
    UNREADABLE,
    CorruptLeaseError,
    LeaseRecord,
    describe,
)
from marin_rules.storage.leases.store import ChangedError, LeaseStore, Snapshot, Version

_RACES = 10
"""How many races in a row `try_acquire` may lose before it leaves the lease to the others for this time."""


class LeaseLostError(MarinRulesError):
    """The lease is not ours, or no longer: this worker has to stop, and its result is discarded."""

    def __init__(self, message: str, holder: LeaseRecord | None) -> None:
        super().__init__(message, holder)
        self.holder = holder
        """Who has it now; `None` when nobody has."""

    def __str__(self) -> str:
        return str(self.args[0])


class LeaseRemovedError(LeaseLostError):
    """The lease is gone, and nobody has taken it: its directory was emptied."""


@dataclass(frozen=True)
class _Held:
    record: LeaseRecord
    version: Version


@dataclass(frozen=True)
class _Attempt:
    record: LeaseRecord
    begun: float


@dataclass(frozen=True)
class _Observation:
    data: bytes
    first_seen: float


class Lease:
    """One worker's hold on one step, or its wait for it."""

    def __init__(self, store: LeaseStore, owner: Owner, clock: Clock, *, lifetime: float = LIFETIME_SECONDS) -> None:
        self.lifetime = lifetime
        self._store = store
        self._owner = owner
        self._clock = clock
        self._held: _Held | None = None
        self._observed: _Observation | None = None
        self._unanswered: dict[bytes, _Attempt] = {}
        self.refreshed_at = clock.since_boot()
        """When (`Clock.since_boot`) the write began by which we took or last refreshed the lease: others may take it a
        lifetime later."""

        self.taken_from: LeaseRecord | None = None
        """Whose stale lease we took over; `None` when the lease was free."""

        self._one_at_a_time = threading.RLock()

    @property
    def path(self) -> str:
        """Where the lease is."""
        return self._store.path

    @property
    def record(self) -> LeaseRecord | None:
        """What we last wrote into the lease file, `None` while we do not hold the lease as far as we know."""
        held = self._held
        return None if held is None else held.record

    def try_acquire(self) -> LeaseRecord | None:
        """Take the lease if it is free or stale: `None` when we now hold it, otherwise who does.

        Call it repeatedly: what it saw of another's lease is kept between calls.
        """
        with self._one_at_a_time:
            if self._held is not None:
                return None
            holder = UNREADABLE
            for _ in range(_RACES):
                snapshot = self._store.read()
                if self._recognise(snapshot):
                    return None
                if snapshot is None:
                    self.taken_from = None
                    is_ours = self._write(self._first_record(epoch=1), self._store.create)
                else:
                    holder = self._parse(snapshot)
                    if not self._is_stale(snapshot, holder):
                        return holder
                    is_ours = self._take_over(snapshot, holder)
                if is_ours:
                    return None
            return holder

    def refresh(self) -> None:
        """Show that we are alive; `LeaseLostError` when the lease is not ours."""
        with self._one_at_a_time:
            held = self._require_held()
            record = held.record.beaten(self._clock.time())
            if not self._write(record, lambda data: self._store.replace(data, held.version)):
                raise self._refused()

    def verify(self) -> None:
        """Check that the lease is still ours; `LeaseLostError` when it is not. For actions that no commit can fence."""
        with self._one_at_a_time:
            held = self._require_held()
            snapshot = self._store.read()
            if (snapshot is None or snapshot.version != held.version) and not self._recognise(snapshot):
                raise self._refused()

    def read(self, path: str) -> bytes | None:
        """A file beside the lease, `None` when there is none. The next commit of it relies on what was read."""
        with self._one_at_a_time:
            return self._store.read_beside(path)

    def commit(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write `path`, a file beside the lease, if the lease is still ours; otherwise `LeaseLostError`.

        `ChangedError` when somebody else changed the file since it was last read or written here. A write that is
        not `durable` may be lost in a power cut.
        """
        with self._one_at_a_time:
            if not self._change_held(lambda version: self._store.commit(version, path, data, durable=durable)):
                raise self._refused()

    def overwrite(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Commit regardless of the present content: for files of the holder alone, where a predecessor's late write may
        lie."""
        for attempt in range(_RACES):
            try:
                return self.commit(path, data, durable=durable)
            except ChangedError:
                # Perhaps we changed it ourselves, and the answer was lost.
                if self.read(path) == data:
                    return
                if attempt + 1 == _RACES:
                    raise

    def release(self) -> None:
        """Give the lease back. One that is not ours stays as it is."""
        with self._one_at_a_time:
            if self._held is not None:
                self._change_held(self._store.delete)
                self._held = None

    def _require_held(self) -> _Held:
        if self._held is None:
            raise self._refused()
        return self._held

    def _first_record(self, epoch: int) -> LeaseRecord:
        return LeaseRecord.first(self._owner, epoch, self._clock.time(), self.lifetime)

    def _take_over(self, snapshot: Snapshot, holder: LeaseRecord) -> bool:
        record = self._first_record(epoch=holder.epoch + 1)
        is_ours = self._write(record, lambda data: self._store.replace(data, snapshot.version))
        if is_ours:
            self.taken_from = holder
        return is_ours

    def _is_stale(self, snapshot: Snapshot, holder: LeaseRecord) -> bool:
        if holder.owner is not None and holder.owner.is_dead_here():
            return True
        now = self._clock.monotonic()
        if self._observed is None or self._observed.data != snapshot.data:
            self._observed = _Observation(snapshot.data, first_seen=now)
        return now - self._observed.first_seen >= holder.lifetime

    def _write(self, record: LeaseRecord, swap: Callable[[bytes], Version | None]) -> bool:
        """Change the lease file to `record`; returns whether the lease is ours afterwards."""
        data = record.to_bytes()
        attempt = self._unanswered[data] = _Attempt(record, self._clock.since_boot())
        try:
            version = swap(data)
        except OSError:
            if self._recognise(self._store.read()):
                return True
            raise
        if version is not None:
            self._hold(attempt, version)
            return True
        if self._recognise(self._store.read()):
            return True
        del self._unanswered[data]
        return False

    def _change_held(self, change: Callable[[Version], bool]) -> bool:
        """Make a change at the version we hold, or at that of a later write of ours whose answer was lost."""
        if change(self._require_held().version):
            return True
        return self._recognise(self._store.read()) and change(self._require_held().version)

    def _recognise(self, snapshot: Snapshot | None) -> bool:
        """Whether the lease is a write of ours whose answer was lost; if so we hold it."""
        attempt = None if snapshot is None else self._unanswered.get(snapshot.data)
        if snapshot is None or attempt is None:
            return False
        self._hold(attempt, snapshot.version)
        return True

    def _hold(self, attempt: _Attempt, version: Version) -> None:
        self._held = _Held(attempt.record, version)
        self.refreshed_at = attempt.begun
        # Earlier writes asked for a version that is gone: they cannot be made any more.
        self._unanswered.clear()

    def _parse(self, snapshot: Snapshot) -> LeaseRecord:
        try:
            return LeaseRecord.parse(snapshot.data, self._store.path)
        except CorruptLeaseError:
            return UNREADABLE

    def _refused(self) -> LeaseLostError | UnansweredError:
        """Why a change was refused: the lease is lost, unless it is just as we left it."""
        snapshot = self._store.read()
        if self._held is not None and snapshot is not None and snapshot.version == self._held.version:
            message = f"the lease {self._store.path} could not be changed, although it is still as we left it"
            return UnansweredError(errno.EAGAIN, message, self._store.path)
        self._held = None
        holder = None if snapshot is None else self._parse(snapshot)
        if holder is None:
            return LeaseRemovedError(
                f"{self._owner.worker_id} does not hold the lease {self._store.path}: it has been removed, perhaps with"
                " its directory. This worker has to stop, and its result is discarded; run the step again if nobody"
                " else does.",
                None,
            )
        return LeaseLostError(
            f"{self._owner.worker_id} does not hold the lease {self._store.path}: it is held by"
            f" {describe(holder, self._clock.time())}. This worker has to stop, and its result is discarded; run the"
            " step again if nobody else does.",
            holder,
        )
