"""Every order in which the calls of some workers can reach a store, and every expiry and lost answer in between.

Breadth first, so that the first violation has the shortest schedule. Two histories that lead to the same store, time,
answers, budgets and ledger are one state from there on: what a worker does next depends on its answers alone.

A worker that is killed is one that is never scheduled again, so that deaths need no events of their own, except for
whether others can see them. Workers run the same program: which one moves first makes no difference, and is the first.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from marin_rules.storage.leases.record import FREE, LIFETIME_SECONDS
from support.lease_models.oracle import Ledger, Violation
from support.lease_models.replay import LEASE, LOST, Kind, Replayer, Request

type Stored = tuple[bytes, Any] | None
"""The content of an object and its version."""


class Event(NamedTuple):
    """What leads from one state to the next. It is put into words only if somebody is to read it: few are."""

    words: str
    who: int | None = None
    request: Request = ()
    answer: Any = None

    def __str__(self) -> str:
        return self.words.format(who=self.who, request=_shown(self.request), answer=str(self.answer)[:40])


class State(NamedTuple):
    """Everything that the rest of a history depends on. All parts that are large are numbers of what is in a table."""

    lease: int
    status: int
    writes: int
    now: float
    nodes: tuple[int, ...]
    dozing: tuple[int, ...]
    """Who is to read its clock only after the next expiry."""
    late: int
    """Requests that the store has not yet received, though their senders gave up waiting."""
    expiries: int
    losses: int
    kills: int
    dead: tuple[int, ...]
    ledger: int


@dataclass(frozen=True)
class Bounds:
    """How much may go wrong in one history."""

    workers: int = 2
    expiries: int = 2
    losses: int = 0
    """Writes whose answer is lost: made, made and called refused, or made at any later time."""
    kills: int = 0
    """Workers whose death the others can see at once."""
    depth: int | None = None
    """How many events at most; None: all histories to their ends."""


@dataclass
class Search:
    """One exhaustive search."""

    kind: Kind
    replayer: Replayer
    bounds: Bounds
    status: bytes | None = None
    """What the status holds in the beginning."""
    may_repeat: bool = False
    states: int = 0
    transitions: int = 0
    deepest: int = 0
    is_complete: bool = True
    _table: list[Any] = field(default_factory=list)
    _numbers: dict[Any, int] = field(default_factory=dict)

    def run(self) -> list[str] | None:
        """The shortest schedule to a violation, which is its last line; None when there is none."""
        first = self._first()
        seen = {first}
        layer: list[tuple[State, Any]] = [(first, None)]
        while layer:
            if self.bounds.depth is not None and self.deepest == self.bounds.depth:
                self.is_complete = False
                break
            following: list[tuple[State, Any]] = []
            for state, trail in layer:
                try:
                    for event, successor in self._successors(state):
                        self.transitions += 1
                        if successor not in seen:
                            seen.add(successor)
                            following.append((successor, (trail, event)))
                except _Found as found:
                    return [*_lines(trail), str(found.event), str(found.violation)]
            layer = following
            self.deepest += 1
        self.states = len(seen)
        return None

    def _first(self) -> State:
        stored = None if self.status is None else (self.status, self._version(self.status, 0))
        nodes = tuple(self.replayer.begin(number) for number in range(self.bounds.workers))
        bounds = self.bounds
        return State(
            lease=self._put(None),
            status=self._put(stored),
            writes=0,
            now=0.0,
            nodes=nodes,
            dozing=(),
            late=self._put(()),
            expiries=bounds.expiries,
            losses=bounds.losses,
            kills=bounds.kills,
            dead=(),
            ledger=self._put(Ledger()),
        )

    def _successors(self, state: State) -> Iterator[tuple[Event, State]]:
        if state.expiries:
            later = state._replace(now=state.now + LIFETIME_SECONDS, expiries=state.expiries - 1)
            awake = [later]
            for who in state.dozing:
                awake = [after for each in awake for after in self._clock_read(each, who)]
            yield from ((Event("expiry"), each) for each in awake)
        late = self._table[state.late]
        for position, (who, request) in enumerate(late):
            rest = state._replace(late=self._put(late[:position] + late[position + 1 :]))
            yield Event("{who} late {request}", who, request), self._perform(rest, who, request)[1]
        for who, node in enumerate(state.nodes):
            request = self.replayer.request(node)
            if isinstance(request, str) or who in state.dead or who in state.dozing:
                continue
            yield from self._steps_of(who, request, state)
            if state.nodes[who] == self.replayer.begin(who):
                break  # Those after this one have not begun either, and are like this one.

    def _steps_of(self, who: int, request: Request, state: State) -> Iterator[tuple[Event, State]]:
        answer, after = self._perform(state, who, request)
        event = Event("{who} {request} -> {answer}", who, request, answer)
        yield from ((event, each) for each in self._told(after, who, answer))
        if request[0] not in ("write", "delete", "commit"):
            return
        if state.kills:
            yield Event("{who} killed", who), state._replace(kills=state.kills - 1, dead=(*state.dead, who))
            sent = state._replace(late=self._put((*self._table[state.late], (who, request))))
            yield Event("{who} killed, sent", who), sent._replace(kills=state.kills - 1, dead=(*state.dead, who))
        if not state.losses:
            return
        fewer = state._replace(losses=state.losses - 1)
        late = fewer._replace(late=self._put((*self._table[state.late], (who, request))))
        timeout = Event("{who} {request} -> timeout", who, request)
        yield from ((timeout, each) for each in self._told(late, who, LOST))
        if not answer:
            return
        made = after._replace(losses=state.losses - 1)
        lost = event._replace(words=f"{event.words}, lost")
        yield from ((lost, each) for each in self._told(made, who, LOST))
        if not self.kind.is_fenced:
            refusal = False if request[0] == "delete" else None
            refused = event._replace(words=f"{event.words}, refused")
            yield from ((refused, each) for each in self._told(made, who, refusal))

    def _told(self, state: State, who: int, answer: Any) -> list[State]:
        nodes = list(state.nodes)
        nodes[who] = self.replayer.answered(nodes[who], answer)
        return self._clock_read(state._replace(nodes=tuple(nodes)), who)

    def _clock_read(self, state: State, who: int) -> list[State]:
        """A clock tells nothing new until time passes: it is read at once, or after the next expiry."""
        if who in state.dozing:
            state = state._replace(dozing=tuple(other for other in state.dozing if other != who))
        if self.replayer.request(state.nodes[who]) != ("now",):
            return [state]
        later = [state._replace(dozing=tuple(sorted((*state.dozing, who))))] if state.expiries else []
        return self._told(state, who, state.now) + later

    def _perform(self, state: State, who: int, request: Request) -> tuple[Any, State]:
        try:
            return self._perform_unchecked(state, who, request)
        except Violation as violation:
            raise _Found(Event("{who} {request}", who, request), violation) from violation

    def _perform_unchecked(self, state: State, who: int, request: Request) -> tuple[Any, State]:
        match request:
            case ("is dead", other):
                return other in state.dead, state
            case ("read", place):
                return self._stored(state, place), state
            case ("write", place, data, expected):
                if _version_in(self._stored(state, place)) != expected:
                    return None, state
                return self._write(state, who, place, data)
            case ("delete", _, expected):
                if _version_in(self._stored(state, LEASE)) != expected:
                    return False, state
                ledger = self._ledger(state).lease_removed(who)
                return True, state._replace(lease=self._put(None), ledger=self._put(ledger))
            case ("commit", data, expected):
                if _version_in(self._stored(state, LEASE)) != expected:
                    return False, state
                return True, self._write(state, who, "status", data)[1]
            case ("force", place, data):  # Only broken workers write whatever is there.
                return self._write(state, who, place, data)
            case ("force delete", place):
                if self._stored(state, place) is None:
                    return False, state
                ledger = self._ledger(state).lease_removed(who)
                return True, state._replace(lease=self._put(None), ledger=self._put(ledger))
        raise AssertionError(f"no such request: {request}")

    def _write(self, state: State, who: int, place: str, data: bytes) -> tuple[Any, State]:
        # Numbers that never come back; a store whose versions repeat needs none, which keeps its states few.
        writes = 0 if self.kind.repeats_versions else state.writes + 1
        version = self._version(data, writes)
        stored, ledger = self._put((data, version)), self._ledger(state)
        if place == LEASE and data == FREE:
            return version, state._replace(lease=stored, writes=writes, ledger=self._put(ledger.lease_removed(who)))
        if place == LEASE:
            is_dead = ledger.holder in state.dead
            ledger = ledger.lease_written(who, state.now, LIFETIME_SECONDS, is_dead=is_dead)
            return version, state._replace(lease=stored, writes=writes, ledger=self._put(ledger))
        ledger = ledger.status_written(who, data, is_fenced=self.kind.is_fenced, may_repeat=self.may_repeat)
        return version, state._replace(status=stored, writes=writes, ledger=self._put(ledger))

    def _version(self, data: bytes, writes: int) -> Any:
        if self.kind.repeats_versions:
            return hashlib.md5(data).hexdigest()
        return writes if self.kind.is_fenced else str(writes)

    def _stored(self, state: State, place: str) -> Stored:
        stored: Stored = self._table[state.lease if place == LEASE else state.status]
        return stored

    def _ledger(self, state: State) -> Ledger:
        ledger: Ledger = self._table[state.ledger]
        return ledger

    def _put(self, value: Any) -> int:
        number = self._numbers.setdefault(value, len(self._table))
        if number == len(self._table):
            self._table.append(value)
        return number


class _Found(Exception):
    def __init__(self, event: Event, violation: Violation) -> None:
        super().__init__(event)
        self.event, self.violation = event, violation


def _version_in(stored: Stored) -> Any:
    return None if stored is None else stored[1]


def _lines(trail: Any) -> list[str]:
    lines: list[str] = []
    while trail is not None:
        trail, event = trail
        lines.append(str(event))
    return lines[::-1]


def _shown(request: Request) -> str:
    return " ".join("lease" if part == LEASE else str(part).rpartition("/")[2][:24] for part in request)
