"""What keeps a lease: one small file or object that is changed by compare-and-swap only, and the files beside it.

`local` keeps it on a POSIX file system, `beside_objects` on an object store. One test suite covers both.
"""

from dataclasses import dataclass
from typing import Protocol

type Version = bytes | int | str
"""Distinguishes one content of a lease from every other. Opaque except to its store."""


class ChangedError(OSError):
    """A file beside the lease is not as this store last read or wrote it: read it again, then decide again."""


@dataclass(frozen=True)
class Snapshot:
    """A lease as it was read."""

    data: bytes
    version: Version


class LeaseStore(Protocol):
    """One lease. Each method is atomic, and `None` or `False` says that nothing was changed.

    An `OSError` says that the store could not be asked or did not answer: the change may have been made.
    """

    @property
    def path(self) -> str:
        """Where the lease is, for messages."""

    def read(self) -> Snapshot | None:
        """The lease, `None` when there is none."""

    def create(self, data: bytes) -> Version | None:
        """Make the lease; `None` when there is one already."""

    def replace(self, data: bytes, version: Version) -> Version | None:
        """Change the lease; `None` when it is no longer at `version`."""

    def delete(self, version: Version) -> bool:
        """Remove the lease; `False` when it is no longer at `version`."""

    def read_beside(self, path: str) -> bytes | None:
        """A file beside the lease, `None` when there is none. The next commit of it relies on what was read."""

    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        """Write a file beside the lease as a whole; `False` when the lease is no longer at `version`.

        A store that cannot compare the lease and write the file in one go compares the file as well, with what it
        last read or wrote there: `ChangedError` when that differs.
        """
