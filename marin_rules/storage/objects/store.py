"""The contract of an object store: whole objects, each with a version, changed only at the version one has seen."""

from dataclasses import dataclass
from typing import Protocol

type ObjectVersion = str
"""Distinguishes one content of an object from others; see `ObjectStore.repeats_versions`."""


@dataclass(frozen=True)
class StoredObject:
    """An object as it was read."""

    data: bytes
    version: ObjectVersion


@dataclass(frozen=True)
class ObjectState:
    """What is known of an object without reading it."""

    version: ObjectVersion
    size: int


class ObjectStore(Protocol):
    """Objects by their URLs. `None` or `False` says that nothing was changed.

    Trouble that a person must clear is a `StorageError`. `UnansweredError` says that the store did not answer, or
    asked for patience: a change may or may not have been made.
    """

    repeats_versions: bool
    """Whether equal contents have equal versions, so that a version may come back."""

    @property
    def service(self) -> str:
        """The address of the service: each service has its own bucket of a given name."""

    def read(self, url: str) -> StoredObject | None:
        """The object, `None` when there is none."""

    def read_part(self, url: str, start: int, size: int) -> bytes | None:
        """At most `size` bytes from `start` on, which counts from the end if it is negative; `None` when there is no
        object. Beyond its end there is nothing: `b""`."""

    def write(self, url: str, data: bytes, expected: ObjectVersion | None) -> ObjectVersion | None:
        """Write the object if it is at version `expected` (`None`: if it is absent); `None` when it is not."""

    def put(self, url: str, data: bytes) -> None:
        """Write the object, whatever exists there."""

    def state(self, url: str) -> ObjectState | None:
        """Version and size of the object, `None` when there is none."""

    def append(self, url: str, data: bytes, state: ObjectState | None) -> ObjectVersion | None:
        """Put some MiB at the end of an object in this state (`None`: make it), without fetching a large one; `None`
        when it is in another state. Given more time than other calls."""

    def delete(self, url: str, expected: ObjectVersion) -> bool:
        """Remove the object if it is at version `expected`."""

    def size(self, url: str) -> int | None:
        """How many bytes the object has; `None` when there is none."""

    def modified(self, url: str) -> float | None:
        """When the object was last written, in seconds since 1970; `None` when there is none."""
