"""Every kind of store that keeps leases, seen from outside: what the contract suite runs over."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from marin_rules.state.status import STATUS_FILE
from marin_rules.state.step_lease import lease_path
from marin_rules.storage.leases.beside_objects import LeaseBesideObjects
from marin_rules.storage.leases.local import LocalLeaseStore
from marin_rules.storage.leases.store import LeaseStore
from marin_rules.storage.objects.store import ObjectStore
from support.lease_models.memory import FencedStore, MemoryObjects


@dataclass(frozen=True)
class Backend:
    """One lease on a kind of store."""

    open_store: Callable[[], LeaseStore]
    """Another door to one and the same lease."""
    status_path: str
    read_file: Callable[[str], bytes | None]
    put_file: Callable[[str, bytes], None]
    """Write any file behind the back of everybody."""
    lease_path: str
    is_fenced: bool
    """Whether a commit compares the lease and writes the status in one go."""

    def put_lease(self, data: bytes) -> None:
        self.put_file(self.lease_path, data)


def fenced_backend() -> Backend:
    store = FencedStore()

    def put(path: str, data: bytes) -> None:
        if path == store.path:
            store.put(data)
        else:
            store.files[path] = data

    return Backend(lambda: store, f"memory/{STATUS_FILE}", store.files.get, put, store.path, is_fenced=True)


def local_backend(output_path: Path) -> Backend:
    path = lease_path(str(output_path))

    def put(path: str, data: bytes) -> None:
        output_path.mkdir(exist_ok=True)
        Path(path).write_bytes(data)

    def read(path: str) -> bytes | None:
        return Path(path).read_bytes() if os.path.exists(path) else None

    status_path = str(output_path / STATUS_FILE)
    return Backend(lambda: LocalLeaseStore(path), status_path, read, put, path, is_fenced=True)


def objects_backend(store: ObjectStore | MemoryObjects, output_path: str) -> Backend:
    objects = cast(ObjectStore, store)  # The one in memory has as much of one as a lease asks for.
    path = lease_path(output_path)

    def read(url: str) -> bytes | None:
        found = objects.read(url)
        return None if found is None else found.data

    return Backend(
        lambda: LeaseBesideObjects(objects, path),
        f"{output_path}/{STATUS_FILE}",
        read,
        objects.put,
        path,
        is_fenced=False,
    )


def numbered_backend() -> Backend:
    return objects_backend(MemoryObjects(), "model://bucket/step-123456")
