"""Leases, stores and workers that are wrong, each in one way that somebody might think right.

The models are worth something only if they find them all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from marin_rules.state.status import Status, status_bytes
from marin_rules.storage.leases.beside_objects import LeaseBesideObjects
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.record import LeaseRecord
from marin_rules.storage.leases.store import ChangedError, LeaseStore, Snapshot, Version
from support.lease_models.programs import is_done, patiently, run_step, take_up
from support.lease_models.replay import (
    FENCED,
    LEASE,
    NUMBERED,
    REPEATING,
    STATUS,
    FencedSeat,
    Kind,
    MakeLease,
    Program,
    Seat,
    real_lease,
)


@dataclass(frozen=True)
class Mutant:
    """Something wrong, on the kind of store where it does harm."""

    harm: str
    """What the oracle must say, as a regular expression."""
    kind: Kind
    make_lease: MakeLease = real_lease
    program: Program = run_step
    skews: tuple[float, ...] = (0.0, 0.0, 0.0)


# Stores


class UnfencedCommit(FencedSeat):
    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        return bool(self.seat.ask("force", STATUS, data))


class UnconditionalDelete(FencedSeat):
    def delete(self, version: Version) -> bool:
        return bool(self.seat.ask("force delete", LEASE))


class CreationOverALease(FencedSeat):
    def create(self, data: bytes) -> Version | None:
        version: Version | None = self.seat.ask("force", LEASE, data)
        return version


class UncomparedCommit(LeaseBesideObjects):
    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        lease = self.read()
        if lease is None or lease.version != version:
            return False
        return bool(cast(Seat, self._objects).ask("force", path, data))


class CommitWithoutLease(LeaseBesideObjects):
    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        written = self._objects.write(path, data, self._seen[path])
        if written is None:
            raise ChangedError(path)
        self._seen[path] = written
        return True


class LatestCompared(LeaseBesideObjects):
    """Looks at the status after the lease, when it may already be that of a successor."""

    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        lease = self.read()
        if lease is None or lease.version != version:
            return False
        self.read_beside(path)
        if self._objects.write(path, data, self._seen[path]) is None:
            raise ChangedError(path)
        return True


# Leases


class StaleByTheWallClock(Lease):
    def _is_stale(self, snapshot: Snapshot, holder: LeaseRecord) -> bool:
        self._clock.monotonic()
        return self._clock.time() - holder.timestamp >= holder.lifetime


class StaleSinceTheFirstLook(Lease):
    """Does not begin anew when the lease has changed."""

    def _is_stale(self, snapshot: Snapshot, holder: LeaseRecord) -> bool:
        if self._observed is None:
            return super()._is_stale(snapshot, holder)
        return self._clock.monotonic() - self._observed.first_seen >= holder.lifetime


class RefreshAtAnyVersion(Lease):
    def refresh(self) -> None:
        record = self._require_held().record.beaten(self._clock.time())
        snapshot = self._store.read()
        if snapshot is None or not self._write(record, lambda data: self._store.replace(data, snapshot.version)):
            raise self._refused()


class RefreshWithoutChange(Lease):
    """A heartbeat with the same bytes: nobody sees it."""

    def refresh(self) -> None:
        held = self._require_held()
        if not self._write(held.record, lambda data: self._store.replace(data, held.version)):
            raise self._refused()


class TakeoverAtAnyVersion(Lease):
    def _take_over(self, snapshot: Snapshot, holder: LeaseRecord) -> bool:
        latest = self._store.read()
        return latest is not None and super()._take_over(latest, holder)


class ReleaseAtAnyVersion(Lease):
    def release(self) -> None:
        latest = self._store.read()
        if self._held is not None and latest is not None:
            self._store.delete(latest.version)
        self._held = None


# Workers


def status_read_before_the_lease(seat: Seat, make_lease: MakeLease) -> str:
    lease = make_lease(seat)
    try:
        for _ in range(2):
            was_done = is_done(lease.read(STATUS))
            if lease.try_acquire() is not None:
                continue
            if not was_done:
                lease.commit(STATUS, _plain(Status.RUNNING))
                lease.overwrite(STATUS, _plain(Status.SUCCESS))
            lease.release()
            return "ended"
    except LeaseLostError:
        return "lost"
    return "gave up"


def running_written_over_anything(seat: Seat, make_lease: MakeLease) -> str:
    """Knows that it has the lease, and so takes a changed status for a predecessor's that does not count."""
    return _simple_run(seat, make_lease, lambda lease: lease.overwrite(STATUS, _plain(Status.RUNNING)))


def running_without_a_token(seat: Seat, make_lease: MakeLease) -> str:
    return _simple_run(seat, make_lease, lambda lease: lease.commit(STATUS, _plain(Status.RUNNING)))


def _simple_run(seat: Seat, make_lease: MakeLease, begin: Callable[[Lease], None]) -> str:
    lease = make_lease(seat)
    for _ in range(2):
        try:
            if lease.try_acquire() is None:
                if not is_done(lease.read(STATUS)):
                    begin(lease)
                    lease.overwrite(STATUS, _plain(Status.SUCCESS))
                lease.release()
                return "ended"
        except LeaseLostError:
            return "lost"
        except ChangedError:
            continue
    return "gave up"


def step_run_after_a_loss(seat: Seat, make_lease: MakeLease) -> str:
    """Takes the lease again after a loss, and goes on with the work as if nothing had happened."""
    lease = make_lease(seat)
    if lease.try_acquire() is not None and lease.try_acquire() is not None:
        return "gave up"
    try:
        if not take_up(seat, lease, is_done_enough=True):
            return "not run"
        patiently(lambda: lease.overwrite(STATUS, _plain(Status.SUCCESS)))
    except (LeaseLostError, ChangedError):
        for _ in range(2):
            if lease.try_acquire() is None:
                lease.overwrite(STATUS, _plain(Status.SUCCESS))
                break
    lease.release()
    return "ended"


def _plain(status: Status) -> bytes:
    return status_bytes(status, "step")


def _on(store: Callable[[Seat], LeaseStore], lease: type[Lease] = Lease) -> MakeLease:
    return lambda seat: lease(store(seat), seat.owner(), seat)


def broken_files(store: type[FencedSeat]) -> MakeLease:
    return _on(lambda seat: store(seat))


def broken_objects(store: type[LeaseBesideObjects]) -> MakeLease:
    return _on(lambda seat: store(seat.objects(), LEASE))


def broken_lease(lease: type[Lease]) -> MakeLease:
    return _on(lambda seat: seat.lease_store(), lease)


MUTANTS = {
    "a commit that is not fenced": Mutant("without the lease", FENCED, broken_files(UnfencedCommit)),
    "a release without a condition": Mutant("removed the lease of", FENCED, broken_files(UnconditionalDelete)),
    "a creation over a lease": Mutant("took the lease of", FENCED, broken_files(CreationOverALease)),
    "a commit that does not compare the status": Mutant(
        "after its successor", NUMBERED, broken_objects(UncomparedCommit)
    ),
    "a commit that does not compare the lease": Mutant(
        "after its successor", NUMBERED, broken_objects(CommitWithoutLease)
    ),
    "a commit that compares with the latest status": Mutant(
        "after its successor", NUMBERED, broken_objects(LatestCompared)
    ),
    "staleness by the wall clock": Mutant(
        "took the lease of", FENCED, broken_lease(StaleByTheWallClock), skews=(0.0, 600.0, -600.0)
    ),
    "staleness since the first look": Mutant("took the lease of", NUMBERED, broken_lease(StaleSinceTheFirstLook)),
    "a refresh at any version": Mutant("took the lease of", NUMBERED, broken_lease(RefreshAtAnyVersion)),
    "a refresh that nobody sees": Mutant("took the lease of", NUMBERED, broken_lease(RefreshWithoutChange)),
    "a takeover at any version": Mutant("took the lease of", REPEATING, broken_lease(TakeoverAtAnyVersion)),
    "a release at any version": Mutant("removed the lease of", REPEATING, broken_lease(ReleaseAtAnyVersion)),
    "a status read before the lease": Mutant("over the SUCCESS of", FENCED, program=status_read_before_the_lease),
    "RUNNING over anything": Mutant("wrote RUNNING last", NUMBERED, program=running_written_over_anything),
    "RUNNING without a token": Mutant("SUCCESS after its successor", REPEATING, program=running_without_a_token),
    "a step gone on with after a loss": Mutant("wrote RUNNING last", FENCED, program=step_run_after_a_loss),
}
