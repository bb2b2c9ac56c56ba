"""A lease on an object store: an object that is changed by conditional writes, and fenced objects beside it.

No object store changes two objects at once, so a commit cannot compare the lease and write the status in one go. Two
comparisons do instead. A commit first reads the lease, and then writes the status on condition that the status is as
this worker last saw it. A worker that takes over a lease reads the status and then writes its own RUNNING, on the same
condition. From that write on, every commit of the predecessor fails: it relies on a status that is gone. If the
predecessor's commit arrived earlier, the write of RUNNING fails (`ChangedError`); the successor reads the status again
and finds the step done. So a step is committed once, wherever the two workers stop, and however late their writes are.

A lease is given back by deleting it, or, on a store that ignores the condition of a deletion and so might delete a
successor's, by a conditional write of `FREE`. That one stays, and the next holder replaces it.

That requires versions that never recur. GCS generations do not. The ETag of S3 is a hash of the content: a
writer there must put something unique into what it writes (see `marin_rules.state.status.status_bytes`).
"""

from collections.abc import Callable

from marin_rules.storage.leases.record import FREE
from marin_rules.storage.leases.store import ChangedError, Snapshot, Version
from marin_rules.storage.objects.store import ObjectStore, ObjectVersion


class LeaseBesideObjects:
    """A lease object. The version of a lease is that of the object.

    `prepare` is called once before the first change, and returns the store to change it in (one that compares itself,
    where the other does not), and whether a deletion there respects its condition.
    """

    def __init__(
        self,
        objects: ObjectStore,
        lease_url: str,
        prepare: Callable[[ObjectStore], tuple[ObjectStore, bool]] = lambda objects: (objects, True),
    ) -> None:
        self._objects = objects
        self._url = lease_url
        self._prepare = prepare
        self._is_prepared = False
        self._deletes = True
        self._free: ObjectVersion | None = None
        """The version of a lease that was given back and left there, as last read."""

        self._seen: dict[str, ObjectVersion | None] = {}
        """Versions of the objects beside the lease, as last read or written; `None` for an absent one."""

    @property
    def path(self) -> str:
        return self._url

    def read(self) -> Snapshot | None:
        found = self._objects.read(self._url)
        self._free = found.version if found is not None and found.data == FREE else None
        return None if found is None or self._free is not None else Snapshot(found.data, found.version)

    def create(self, data: bytes) -> Version | None:
        self._make_ready()
        written = self._objects.write(self._url, data, self._free)
        if written is None and self.read() is None and self._free is not None:
            written = self._objects.write(self._url, data, self._free)
        return written

    def replace(self, data: bytes, version: Version) -> Version | None:
        self._make_ready()
        return self._objects.write(self._url, data, str(version))

    def delete(self, version: Version) -> bool:
        if self._deletes:
            return self._objects.delete(self._url, str(version))
        return self._objects.write(self._url, FREE, str(version)) is not None

    def _make_ready(self) -> None:
        if not self._is_prepared:
            self._objects, self._deletes = self._prepare(self._objects)
            self._is_prepared = True

    def read_beside(self, path: str) -> bytes | None:
        found = self._objects.read(path)
        self._seen[path] = None if found is None else found.version
        return None if found is None else found.data

    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        if path not in self._seen:
            self.read_beside(path)
        lease = self.read()
        if lease is None or lease.version != version:
            return False
        written = self._objects.write(path, data, self._seen[path])
        if written is None:
            raise ChangedError(f"{path} was changed by somebody else")
        self._seen[path] = written
        return True
