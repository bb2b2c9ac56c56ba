"""One worker's whole session with a lease, on a store that may not answer."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from marin_rules.storage.explain import UnansweredError
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.store import ChangedError, LeaseStore
from marin_rules.storage.objects.store import ObjectStore, StoredObject
from support.lease_models.unreliable import UnreliableStore


def complete(lease: Lease, status_path: str, running: bytes = b"RUNNING") -> None:
    """From the lease to SUCCESS and back, as often as it takes to get an answer."""
    while not _begin(lease, status_path, running):
        pass
    until_answered(lease.refresh)
    until_answered(lambda: lease.overwrite(status_path, b"SUCCESS"))
    until_answered(lease.refresh)
    until_answered(lease.release)


def _begin(lease: Lease, status_path: str, running: bytes) -> bool:
    assert until_answered(lease.try_acquire) is None
    try:
        until_answered(lambda: lease.read(status_path))
        until_answered(lambda: lease.commit(status_path, running))
    except ChangedError:
        return False
    return True


def until_answered[Result](action: Callable[[], Result]) -> Result:
    while True:
        try:
            return action()
        except UnansweredError:
            continue


@dataclass
class UnreliableObjects:
    """An object store of whose changes some get no answer, drawn from a seed: made or not, or called refused."""

    inner: ObjectStore
    chance: random.Random
    probability: float
    losses: int = 0

    @property
    def repeats_versions(self) -> bool:
        return self.inner.repeats_versions

    def read(self, url: str) -> StoredObject | None:
        return self.inner.read(url)

    def write(self, url: str, data: bytes, expected: str | None) -> str | None:
        return self._change(lambda: self.inner.write(url, data, expected), None)

    def put(self, url: str, data: bytes) -> None:
        self.inner.put(url, data)

    def delete(self, url: str, expected: str) -> bool:
        return self._change(lambda: self.inner.delete(url, expected), False)

    def modified(self, url: str) -> float | None:
        return self.inner.modified(url)

    def _change[T](self, change: Callable[[], T], refusal: T) -> T:
        if self.chance.random() >= self.probability:
            return change()
        self.losses += 1
        loss = self.chance.choice(("not made", "lost", "refused"))
        if loss != "not made":
            change()
        if loss == "refused":
            return refusal
        raise UnansweredError(0, loss)


def unreliable_store(store: LeaseStore, chance: random.Random, probability: float) -> UnreliableStore:
    """A lease store of whose calls some get no answer."""
    kinds = ["ok", "answer lost", "not made"]
    failures = chance.choices(kinds, [1 - probability, probability / 2, probability / 2], k=1000)
    return UnreliableStore(store, failures)
