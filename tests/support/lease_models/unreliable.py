"""A store whose answers get lost."""

from collections.abc import Callable
from dataclasses import dataclass, field

from marin_rules.storage.explain import UnansweredError
from marin_rules.storage.leases.store import LeaseStore, Snapshot, Version


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
            raise UnansweredError(0, "connection reset before the request")
        answer = change()
        if failure == "answer lost":
            raise UnansweredError(0, "connection reset before the answer")
        return refusal if failure == "refused" else answer

    def read(self) -> Snapshot | None:
        return self._call(self.inner.read, None)

    def create(self, data: bytes) -> Version | None:
        return self._call(lambda: self.inner.create(data), None)

    def replace(self, data: bytes, version: Version) -> Version | None:
        return self._call(lambda: self.inner.replace(data, version), None)

    def delete(self, version: Version) -> bool:
        return self._call(lambda: self.inner.delete(version), False)

    def read_beside(self, path: str) -> bytes | None:
        return self._call(lambda: self.inner.read_beside(path), None)

    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        return self._call(lambda: self.inner.commit(version, path, data, durable=durable), False)
