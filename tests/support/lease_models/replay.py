"""A worker as a function of the answers it got: run again from its beginning, it asks for the same next thing.

So a worker needs no thread to be stopped between two calls of the store. It is run with the answers so far, and stopped
at the first call that has none. What it is about to do depends on nothing else, and is worked out once for each
sequence of answers.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from marin_rules.state import status as status_module
from marin_rules.storage.explain import UnansweredError
from marin_rules.storage.leases import record as record_module
from marin_rules.storage.leases.beside_objects import LeaseBesideObjects
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.store import LeaseStore, Snapshot, Version
from marin_rules.storage.objects.store import ObjectStore, StoredObject
from support.lease_models.clock import elsewhere

LEASE, STATUS = "model://bucket/step/.executor_status.lock", "model://bucket/step/.executor_status"

type Request = tuple[Any, ...]
"""What a worker wants next: `("read", place)`, `("write", place, data, expected)`, `("delete", place, expected)`,
`("commit", data, expected lease)`, `("now",)` or `("is dead", worker)`."""

LOST = "the answer was lost"


@dataclass(frozen=True)
class Kind:
    """A kind of store."""

    name: str
    is_fenced: bool = False
    """Compares the lease and writes the status in one go, as local files do."""
    repeats_versions: bool = False
    keeps_leases: bool = False
    """Deletes whatever the condition: a lease is given back by a write, and its object stays."""


FENCED, NUMBERED, REPEATING = Kind("fenced", is_fenced=True), Kind("numbered"), Kind("repeating", repeats_versions=True)
KEEPING = Kind("keeping", repeats_versions=True, keeps_leases=True)


class Suspended(BaseException):
    """The worker waits for the answer to a request that has none yet."""

    def __init__(self, request: Request) -> None:
        self.request = request


class Seat:
    """Where a worker sits: the store and the clock that it sees, all of them made of recorded answers."""

    repeats_versions = False

    def __init__(self, kind: Kind, number: int, answers: list[Any], skew: float, knows_the_dead: bool) -> None:
        self.kind = kind
        self.number = number
        self.knows_the_dead = knows_the_dead
        self._answers = answers
        self._position = 0
        self._skew = skew
        self._now = 0.0
        self._tokens = 0
        self._pending: Suspended | None = None

    def ask(self, *request: Any) -> Any:
        if self._position == len(self._answers):
            # Whatever cleans up on the way out gets no further, either.
            self._pending = self._pending or Suspended(request)
            raise self._pending
        answer = self._answers[self._position]
        self._position += 1
        if answer is LOST:
            raise UnansweredError(0, LOST)
        return answer

    def owner(self) -> Owner:
        return replace(elsewhere(str(self.number)), pid=1 + self.number)

    def lease_store(self) -> LeaseStore:
        if self.kind.is_fenced:
            return FencedSeat(self)
        return LeaseBesideObjects(self.objects(), LEASE, lambda objects: (objects, not self.kind.keeps_leases))

    def objects(self) -> ObjectStore:
        """The seat as an object store: as much of one as a lease asks for."""
        return cast(ObjectStore, self)

    def token(self, length: int) -> str:
        self._tokens += 1
        return f"{self.number}.{self._tokens}"

    # A clock

    def monotonic(self) -> float:
        self._now = self.ask("now")
        return self._now

    def since_boot(self) -> float:
        # Read only to remember when a write began, which decides nothing that a store sees.
        return self._now

    def time(self) -> float:
        return 1_700_000_000.0 + self._now + self._skew

    # An object store

    def read(self, url: str) -> StoredObject | None:
        found = self.ask("read", url)
        return None if found is None else StoredObject(*found)

    def write(self, url: str, data: bytes, expected: str | None) -> str | None:
        version: str | None = self.ask("write", url, data, expected)
        return version

    def delete(self, url: str, expected: str) -> bool:
        return bool(self.ask("delete", url, expected))

    def put(self, url: str, data: bytes) -> None:
        raise NotImplementedError("no worker writes without a condition")

    def modified(self, url: str) -> float | None:
        raise NotImplementedError("no lease is judged by it")


@dataclass(frozen=True)
class FencedSeat:
    """A lease store for a seat at a fenced store."""

    seat: Seat
    path: str = LEASE

    def read(self) -> Snapshot | None:
        found = self.seat.ask("read", LEASE)
        return None if found is None else Snapshot(*found)

    def create(self, data: bytes) -> Version | None:
        written: Version | None = self.seat.ask("write", LEASE, data, None)
        return written

    def replace(self, data: bytes, version: Version) -> Version | None:
        written: Version | None = self.seat.ask("write", LEASE, data, version)
        return written

    def delete(self, version: Version) -> bool:
        return bool(self.seat.ask("delete", LEASE, version))

    def read_beside(self, path: str) -> bytes | None:
        found = self.seat.ask("read", path)
        return None if found is None else found[0]

    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        return bool(self.seat.ask("commit", data, version))


type MakeLease = Callable[[Seat], Lease]
type Program = Callable[[Seat, MakeLease], str]
"""What a worker does. Returns what became of it."""


def real_lease(seat: Seat) -> Lease:
    return Lease(seat.lease_store(), seat.owner(), seat)


class Replayer:
    """Workers that run one program on one kind of store. A node stands for the answers that a worker got so far."""

    def __init__(
        self,
        kind: Kind,
        program: Program,
        make_lease: MakeLease = real_lease,
        skews: tuple[float, ...] = (0.0, 0.0, 0.0),
        knows_the_dead: bool = False,
    ) -> None:
        self._kind, self._program, self._make_lease, self._skews = kind, program, make_lease, skews
        self._knows_the_dead = knows_the_dead
        self._parents: list[tuple[int, Any]] = []
        self._numbers: dict[tuple[int, Any], int] = {}
        self._requests: dict[int, Request | str] = {}

    def begin(self, number: int) -> int:
        return self._node(-1, number)

    def answered(self, node: int, answer: Any) -> int:
        return self._node(node, answer)

    def request(self, node: int) -> Request | str:
        """What the worker asks for next; a text when it has ended."""
        if node not in self._requests:
            self._requests[node] = self._run(node)
        return self._requests[node]

    @property
    def runs(self) -> int:
        return len(self._requests)

    def _node(self, parent: int, answer: Any) -> int:
        key = (parent, answer)
        number = self._numbers.setdefault(key, len(self._parents))
        if number == len(self._parents):
            self._parents.append(key)
        return number

    def _run(self, node: int) -> Request | str:
        answers: list[Any] = []
        while node >= 0:
            node, answer = self._parents[node]
            answers.append(answer)
        number = answers.pop()
        seat = Seat(self._kind, number, answers[::-1], self._skews[number], self._knows_the_dead)
        with _seated(seat):
            try:
                return self._program(seat, self._make_lease)
            except Suspended as suspended:
                return suspended.request


@contextlib.contextmanager
def _seated(seat: Seat) -> Iterator[None]:
    """Whatever is random or asks about processes is answered by the seat."""

    def is_dead_here(owner: Owner) -> bool:
        return seat.knows_the_dead and bool(seat.ask("is dead", owner.pid - 1))

    tokens = SimpleNamespace(token_hex=seat.token)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_module, "secrets", tokens)
        patch.setattr(status_module, "secrets", tokens)
        patch.setattr(status_module, "_versions_repeat", lambda path: seat.kind.repeats_versions)
        patch.setattr(Owner, "is_dead_here", is_dead_here)
        yield
