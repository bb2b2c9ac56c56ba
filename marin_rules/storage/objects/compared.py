"""A store that ignores conditions: each is compared here before the change. Advisory, as there is a moment between."""

from __future__ import annotations

from marin_rules.storage.objects.store import ObjectState, ObjectStore, ObjectVersion, StoredObject


class ComparedObjects:
    """Another store's objects, changed only if they are as expected when last looked at."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.repeats_versions = inner.repeats_versions

    @property
    def service(self) -> str:
        return self._inner.service

    def read(self, url: str) -> StoredObject | None:
        return self._inner.read(url)

    def read_part(self, url: str, start: int, size: int) -> bytes | None:
        return self._inner.read_part(url, start, size)

    def write(self, url: str, data: bytes, expected: ObjectVersion | None) -> ObjectVersion | None:
        return self._inner.write(url, data, expected) if self._is_at(url, expected) else None

    def put(self, url: str, data: bytes) -> None:
        self._inner.put(url, data)

    def state(self, url: str) -> ObjectState | None:
        return self._inner.state(url)

    def append(self, url: str, data: bytes, state: ObjectState | None) -> ObjectVersion | None:
        return self._inner.append(url, data, state) if self._inner.state(url) == state else None

    def delete(self, url: str, expected: ObjectVersion) -> bool:
        return self._is_at(url, expected) and self._inner.delete(url, expected)

    def size(self, url: str) -> int | None:
        return self._inner.size(url)

    def modified(self, url: str) -> float | None:
        return self._inner.modified(url)

    def _is_at(self, url: str, expected: ObjectVersion | None) -> bool:
        found = self._inner.read(url)
        return (None if found is None else found.version) == expected
