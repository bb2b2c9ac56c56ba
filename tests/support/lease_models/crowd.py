"""A crowd that wants the same steps: contenders in an order drawn from a seed, and everything that goes wrong.

All contend for one step until it is done, and then for the next. Some die, seen or unseen; some sleep for lifetimes
in the middle of a call; answers are lost, and requests arrive long after their senders gave up.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from marin_rules.state import status as status_module
from marin_rules.state.status import Status, status_bytes
from marin_rules.storage.explain import UnansweredError
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import LIFETIME_SECONDS
from marin_rules.storage.leases.store import ChangedError
from support.lease_models.oracle import Ledger, Violation
from support.lease_models.programs import is_done, patiently, take_up
from support.lease_models.replay import LEASE, LOST, STATUS, Kind, MakeLease, Request, Seat, real_lease
from support.lease_models.turns import Turns

_LOSSES = 0.1
"""How many of the writes get no answer."""

_CHANGES = ("write", "delete", "commit")


@dataclass
class Step:
    """What the store holds of one step, and the oracle's account of it."""

    lease: tuple[bytes, Any] | None = None
    status: tuple[bytes, Any] | None = None
    ledger: Ledger = field(default_factory=Ledger)


@dataclass
class Crowd:
    """One run. `skew`: by how much wall clocks are wrong at most."""

    kind: Kind
    seed: int
    contenders: int
    acquires: int
    """How often each contender tries to take a lease."""
    make_lease: MakeLease = real_lease
    skew: float = 0.0
    steps: list[Step] = field(default_factory=lambda: [Step()])
    sessions: list[Session] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seen_dead: set[int] = field(default_factory=set)
    late: list[tuple[float, Session, Request]] = field(default_factory=list)
    writes: int = 0

    def run(self) -> None:
        """Everything; a `Violation` when a lease fails."""
        self.turns = Turns(self.contenders, self.seed, longest_tick=0.4, longest_nap=3 * LIFETIME_SECONDS, naps=0.03)
        contenders = [Contender(self, number) for number in range(self.contenders)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(status_module, "_versions_repeat", lambda path: self.kind.repeats_versions)
            patch.setattr(Owner, "is_dead_here", lambda owner: owner.pid - 1 in self.seen_dead)
            self.turns.play([contender.run for contender in contenders])
        self.counts["turns"] = self.turns.turns
        self.counts["steps done"] = sum(step.ledger.done_by is not None for step in self.steps)

    def call(self, session: Session, request: Request) -> Any:
        """What a contender's call of the store comes to."""
        self.turns.pause(session.contender)
        self._deliver_late()
        if request[0] not in _CHANGES or self.turns.chance.random() >= _LOSSES:
            return self._perform(session, request)
        loss = self.turns.chance.choice(("lost", "late", "refused"))
        self.counts[f"answers {loss}"] += 1
        if loss == "late":
            due = self.turns.now + self.turns.chance.uniform(0.0, 2 * LIFETIME_SECONDS)
            self.late.append((due, session, request))
            return LOST
        self._perform(session, request)
        if loss == "refused" and not self.kind.is_fenced:
            return False if request[0] == "delete" else None
        return LOST

    def _deliver_late(self) -> None:
        due = [each for each in self.late if each[0] <= self.turns.now]
        if due:
            self.late = [each for each in self.late if each[0] > self.turns.now]
            for _, session, request in due:
                if self._perform(session, request):
                    self.counts["late writes made"] += 1

    def _perform(self, session: Session, request: Request) -> Any:
        step, who = self.steps[session.step], session.number
        match request:
            case ("read", place):
                return step.lease if place == LEASE else step.status
            case ("write", place, data, expected) if place == LEASE:
                return self._write_lease(session, step, data) if _version(step.lease) == expected else None
            case ("write", _, data, expected):
                return self._write_status(step, who, data) if _version(step.status) == expected else None
            case ("commit", data, expected):
                return _version(step.lease) == expected and bool(self._write_status(step, who, data))
            case ("delete", _, expected) if _version(step.lease) == expected:
                step.ledger = step.ledger.lease_removed(who)
                step.lease = None
                session.has_released = True
                return True
        return False

    def _write_lease(self, session: Session, step: Step, data: bytes) -> Any:
        if step.ledger.holder != session.number:
            self.counts["takeovers" if step.lease else "creations"] += 1
            for other in self.sessions:
                if other is not session and other.step == session.step and other.is_sure(self.turns.now):
                    raise Violation(f"{session.number} took the lease while {other.number} was sure to hold it")
        is_dead = step.ledger.holder in self.seen_dead
        step.ledger = step.ledger.lease_written(session.number, self.turns.now, LIFETIME_SECONDS, is_dead=is_dead)
        step.lease = (data, self._new_version(data))
        return step.lease[1]

    def _write_status(self, step: Step, who: int, data: bytes) -> Any:
        step.ledger = step.ledger.status_written(who, data, is_fenced=self.kind.is_fenced)
        step.status = (data, self._new_version(data))
        return step.status[1]

    def _new_version(self, data: bytes) -> Any:
        self.writes += 1
        if self.kind.repeats_versions:
            return hashlib.md5(data).hexdigest()
        return self.writes if self.kind.is_fenced else str(self.writes)


class Session(Seat):
    """One worker: what it sees of the store and of the time."""

    def __init__(self, crowd: Crowd, contender: Contender, step: int) -> None:
        super().__init__(crowd.kind, crowd.counts["sessions"] + 1, [], contender.skew, True)
        crowd.counts["sessions"] += 1
        self.crowd, self.contender, self.step = crowd, contender.number, step
        self.boot = contender.boot
        self.has_released = self.is_gone = False
        self.lease: Lease | None = None

    def ask(self, *request: Any) -> Any:
        answer = self.crowd.call(self, request)
        if answer is LOST:
            raise UnansweredError(0, LOST)
        return answer

    def monotonic(self) -> float:
        if self.crowd.turns.chance.random() < 0.1:
            self.crowd.turns.pause(self.contender)
        return self.crowd.turns.now + self.boot

    def since_boot(self) -> float:
        return self.monotonic()

    def time(self) -> float:
        return 1_700_000_000.0 + self.crowd.turns.now + self._skew

    def is_sure(self, now: float) -> bool:
        """Whether this worker, if asked now, would rely on its lease."""
        lease = self.lease
        if lease is None or lease.record is None or self.has_released or self.is_gone:
            return False
        return now + self.boot < lease.refreshed_at + lease.lifetime


class Contender:
    """A machine that runs one worker after the other."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self.crowd, self.number = crowd, number
        self.chance = random.Random(f"{crowd.seed}-{number}")
        self.skew = self.chance.uniform(-crowd.skew, crowd.skew)
        self.boot = self.chance.uniform(0.0, 1e6)
        self.step = 0
        self.acquires = 0

    def run(self) -> None:
        while self.acquires < self.crowd.acquires:
            session = Session(self.crowd, self, self.step)
            self.crowd.sessions.append(session)
            outcome = "no answer"
            try:
                outcome = self._work(session)
            except LeaseLostError:
                outcome = "lost"
            except UnansweredError:
                pass
            session.is_gone = True
            self.crowd.sessions.remove(session)
            self.crowd.counts[outcome] += 1

    def _work(self, session: Session) -> str:
        lease = session.lease = self.crowd.make_lease(session)
        if not self._acquire(session, lease):
            return "not run"
        for _ in range(self.chance.randrange(3)):
            self.crowd.turns.pause(self.number, LIFETIME_SECONDS / 3)
            patiently(lease.refresh)
        match self.chance.choices(("SUCCESS", "FAILED", "stopped", "died unseen", "died seen"), (25, 25, 15, 20, 15))[
            0
        ]:
            case "died unseen":
                return "died unseen"
            case "died seen":
                session.is_gone = True
                self.crowd.seen_dead.add(session.number)
                return "died seen"
            case "stopped":
                pass
            case status:
                patiently(lambda: lease.overwrite(STATUS, self._bytes(Status(status))))
        patiently(lease.release)
        return "ended"

    def _acquire(self, session: Session, lease: Lease) -> bool:
        while self.acquires < self.crowd.acquires:
            self.acquires += 1
            if patiently(lease.try_acquire) is None:
                try:
                    if take_up(session, lease, is_done_enough=True):
                        return True
                    patiently(lease.release)
                    self._go_on()
                    return False
                except ChangedError:
                    self.crowd.counts["changed under a takeover"] += 1
                    continue
            if is_done(lease.read(STATUS)):
                self._go_on()
                return False
            if self.chance.random() < 0.02:
                return False
            self.crowd.turns.pause(self.number, self.chance.uniform(0.0, 40.0))
        return False

    def _go_on(self) -> None:
        self.step += 1
        if self.step == len(self.crowd.steps):
            self.crowd.steps.append(Step())

    def _bytes(self, status: Status) -> bytes:
        return status_bytes(status, "step" if self.crowd.kind.is_fenced else "model://bucket/step")


def _version(stored: tuple[bytes, Any] | None) -> Any:
    return None if stored is None else stored[1]
