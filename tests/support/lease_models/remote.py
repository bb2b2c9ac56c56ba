"""A store on the other side of a network: our client, and the emulator that it talks to."""

from collections.abc import Callable
from dataclasses import dataclass

from marin_rules.storage.objects.store import ObjectStore
from support.emulators.common.emulator import Emulator


@dataclass(frozen=True)
class Remote:
    """One store with the bucket `bucket`."""

    emulator: Emulator
    scheme: str
    open: Callable[[], ObjectStore]
    """A client of its own."""

    @property
    def bucket(self) -> str:
        return f"{self.scheme}://bucket"

    def held(self, key: str) -> bytes | None:
        return self.emulator.get("bucket", key)
