"""The right to run a step: a lease that one worker holds at a time, and that outlives no worker.

How it is kept, whatever goes wrong:

- One holder. A lease is taken, refreshed, taken over and given back by compare-and-swap on one small file (in
  `lease_store`). Of any number of workers that try the same change, one succeeds.
- A fence. A takeover counts the epoch up and changes the file. A worker that lost its lease cannot refresh
  it, cannot delete its successor's, and cannot `commit` a status, which is written only while the lease is
  as this worker left it. It could still write data: whoever gets a `LeaseLostError` has to stop.
- No foreign clocks. A lease is stale when its bytes have not changed for `LIFETIME_SECONDS` by the clock of
  the one who watches, or at once when its holder's process is dead on this machine (see `owner`).
- Lost answers. A write that raised an error may have been made: a worker knows its own bytes again.

Read the status of the step after taking its lease, not before: from then on nobody else can change it.

    lease = Lease(LocalLeaseStore(lease_path(output_path)), Owner.current(), SystemClock())
    while (holder := lease.try_acquire()) is not None:
        wait, saying describe(holder, time.time())
    run the step, calling lease.refresh() every HEARTBEAT_SECONDS
    lease.commit(status_path(output_path), b"SUCCESS")
    lease.release()

An `OSError` from any of these says nothing about the lease: try again. Threads may share a `Lease`, for
instance one that refreshes it.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from marin_rules.errors import MarinRulesError
from marin_rules.execution.lease_record import UNREADABLE, CorruptLeaseError, LeaseRecord, describe
from marin_rules.execution.lease_store import LeaseStore, LocalLeaseStore, Snapshot, Version
from marin_rules.execution.owner import Owner
from marin_rules.execution.status import LEASE_FILE
from marin_rules.storage.files import read_bytes

__all__ = [
    "HEARTBEAT_SECONDS",
    "LIFETIME_SECONDS",
    "UNREADABLE",
    "Clock",
    "CorruptLeaseError",
    "Lease",
    "LeaseLostError",
    "LeaseRecord",
    "LeaseStore",
    "LocalLeaseStore",
    "Owner",
    "Snapshot",
    "SystemClock",
    "Version",
    "describe",
    "lease_path",
    "peek",
]

HEARTBEAT_SECONDS = 30
LIFETIME_SECONDS = 90
"""Three heartbeats, as in Marin: one may be late and one may fail."""

_RACES = 10
"""How many races in a row `try_acquire` may lose before it leaves the lease to the others for this time."""


class Clock(Protocol):
    """The two clocks, so that tests need not wait."""

    def monotonic(self) -> float:
        """Seconds that never go back: decides when a lease is stale."""

    def time(self) -> float:
        """Seconds since 1970: what people are shown."""


class SystemClock:
    """The clocks of this machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()


class LeaseLostError(MarinRulesError):
    """The lease is not ours, or no longer: this worker has to stop, and its result does not count."""

    def __init__(self, message: str, holder: LeaseRecord | None) -> None:
        super().__init__(message, holder)
        self.holder = holder
        """Who has it now; `None` when nobody has."""

    def __str__(self) -> str:
        return str(self.args[0])


def lease_path(output_path: str) -> str:
    """Where the lease on the step with this output path is."""
    return os.path.join(output_path, LEASE_FILE)


def peek(output_path: str) -> LeaseRecord | None:
    """Who works on a step, `None` when nobody does; `CorruptLeaseError` when nobody can tell. Only reads."""
    path = lease_path(output_path)
    data = read_bytes(path)
    return None if data is None else LeaseRecord.parse(data, path)


@dataclass(frozen=True)
class _Held:
    record: LeaseRecord
    version: Version


@dataclass(frozen=True)
class _Observation:
    data: bytes
    first_seen: float


class Lease:
    """One worker's hold, or its wait for a hold, on one step."""

    def __init__(self, store: LeaseStore, owner: Owner, clock: Clock) -> None:
        self._store = store
        self._owner = owner
        self._clock = clock
        self._held: _Held | None = None
        self._observed: _Observation | None = None
        self._unanswered: dict[bytes, LeaseRecord] = {}
        self._one_at_a_time = threading.RLock()

    @property
    def record(self) -> LeaseRecord | None:
        """What we last wrote into the lease file, `None` while we do not hold the lease as far as we know."""
        held = self._held
        return None if held is None else held.record

    def try_acquire(self) -> LeaseRecord | None:
        """Take the lease if it is free or stale: `None` when we now hold it, otherwise who does.

        Call it again and again: what it saw of a foreign lease is kept between calls.
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
                raise self._lost()

    def commit(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write `path`, a file beside the lease, if the lease is still ours; otherwise `LeaseLostError`.

        A write that is not `durable` may be lost in a power cut.
        """
        with self._one_at_a_time:
            if not self._change_held(lambda version: self._store.commit(version, path, data, durable=durable)):
                raise self._lost()

    def release(self) -> None:
        """Give the lease back. One that is not ours stays as it is."""
        with self._one_at_a_time:
            if self._held is not None:
                self._change_held(self._store.delete)
                self._held = None

    def _require_held(self) -> _Held:
        if self._held is None:
            raise self._lost()
        return self._held

    def _first_record(self, epoch: int) -> LeaseRecord:
        return LeaseRecord.first(self._owner, epoch, self._clock.time())

    def _take_over(self, snapshot: Snapshot, holder: LeaseRecord) -> bool:
        record = self._first_record(epoch=holder.epoch + 1)
        return self._write(record, lambda data: self._store.replace(data, snapshot.version))

    def _is_stale(self, snapshot: Snapshot, holder: LeaseRecord) -> bool:
        if holder.owner is not None and holder.owner.is_dead_here():
            return True
        now = self._clock.monotonic()
        if self._observed is None or self._observed.data != snapshot.data:
            self._observed = _Observation(snapshot.data, first_seen=now)
        return now - self._observed.first_seen >= LIFETIME_SECONDS

    def _write(self, record: LeaseRecord, swap: Callable[[bytes], Version | None]) -> bool:
        """Change the lease file into `record`; whether the lease is ours after that."""
        data = record.to_bytes()
        self._unanswered[data] = record
        try:
            version = swap(data)
        except OSError:
            if self._recognise(self._store.read()):
                return True
            raise
        if version is not None:
            self._hold(record, version)
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
        record = None if snapshot is None else self._unanswered.get(snapshot.data)
        if snapshot is None or record is None:
            return False
        self._hold(record, snapshot.version)
        return True

    def _hold(self, record: LeaseRecord, version: Version) -> None:
        self._held = _Held(record, version)
        # Earlier writes asked for a version that is gone: they cannot be made any more.
        self._unanswered.clear()

    def _parse(self, snapshot: Snapshot) -> LeaseRecord:
        try:
            return LeaseRecord.parse(snapshot.data, self._store.path)
        except CorruptLeaseError:
            return UNREADABLE

    def _lost(self) -> LeaseLostError:
        self._held = None
        snapshot = self._store.read()
        holder = None if snapshot is None else self._parse(snapshot)
        if holder is None:
            now_held = "it has been removed, perhaps with its directory"
        else:
            now_held = f"it is held by {describe(holder, self._clock.time())}"
        return LeaseLostError(
            f"{self._owner.worker_id} does not hold the lease {self._store.path}: {now_held}. This worker "
            "has to stop, and its result does not count; run the step again if nobody else does.",
            holder,
        )
