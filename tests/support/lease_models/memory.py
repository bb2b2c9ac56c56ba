"""Stores in memory that keep the contracts: objects with numbered or with repeating versions, and a fenced lease."""

import hashlib
from dataclasses import dataclass, field

from marin_rules.storage.leases.store import Snapshot, Version
from marin_rules.storage.objects.store import StoredObject


@dataclass
class MemoryObjects:
    """An object store. Versions are numbers that never come back, as on GCS."""

    repeats_versions = False

    objects: dict[str, StoredObject] = field(default_factory=dict)
    writes: int = 0

    def read(self, url: str) -> StoredObject | None:
        return self.objects.get(url)

    def write(self, url: str, data: bytes, expected: str | None) -> str | None:
        if self._version(url) != expected:
            return None
        self.put(url, data)
        return self._version(url)

    def put(self, url: str, data: bytes) -> None:
        self.writes += 1
        self.objects[url] = StoredObject(data, self._version_of(data))

    def delete(self, url: str, expected: str) -> bool:
        if self._version(url) != expected:
            return False
        del self.objects[url]
        return True

    def modified(self, url: str) -> float | None:
        return 0.0 if url in self.objects else None

    def _version(self, url: str) -> str | None:
        found = self.objects.get(url)
        return None if found is None else found.version

    def _version_of(self, data: bytes) -> str:
        return str(self.writes)


class RepeatingObjects(MemoryObjects):
    """An object store whose versions come back with the content, as on S3."""

    repeats_versions = True

    def _version_of(self, data: bytes) -> str:
        return hashlib.md5(data).hexdigest()


@dataclass
class FencedStore:
    """A lease store that compares the lease and writes the status in one go, as on a file system."""

    data: bytes | None = None
    changes: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    path: str = "memory/.executor_status.lock"

    def read(self) -> Snapshot | None:
        return None if self.data is None else Snapshot(self.data, self.changes)

    def create(self, data: bytes) -> Version | None:
        return self.put(data) if self.data is None else None

    def replace(self, data: bytes, version: Version) -> Version | None:
        return self.put(data) if self._is_at(version) else None

    def delete(self, version: Version) -> bool:
        if not self._is_at(version):
            return False
        self.data = None
        return True

    def read_beside(self, path: str) -> bytes | None:
        return self.files.get(path)

    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        if not self._is_at(version):
            return False
        self.files[path] = data
        return True

    def put(self, data: bytes) -> Version:
        self.data = data
        self.changes += 1
        return self.changes

    def _is_at(self, version: Version) -> bool:
        return self.data is not None and self.changes == version
