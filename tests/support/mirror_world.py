"""The stores that tests of the mirror see, and what happened in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import fsspec

from marin_rules.storage.budget import remaining
from marin_rules.storage.mirror.filesystem import MirrorFileSystem
from support.emulators.common.emulator import Emulator

GB = 2**30


@dataclass
class World:
    """The stores, and where the prefix is."""

    scheme: str
    """Of the sources."""

    store: Emulator
    prefix: str
    folder: Path

    @property
    def fs(self) -> MirrorFileSystem:
        fs: MirrorFileSystem = fsspec.filesystem("mirror")
        return fs

    def at_home(self) -> list[str]:
        """The names of all files below the prefix, control files included."""
        if "://" in self.prefix:
            return self.store.names("bucket")
        root = Path(self.prefix)
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())

    def content(self, path: str) -> bytes | None:
        if "://" in self.prefix:
            return self.store.get("bucket", path)
        place = Path(self.prefix, path)
        return place.read_bytes() if place.is_file() else None

    def moves(self) -> list[str]:
        """The calls that move the content of sources: rewrites, copies and downloads."""
        moves = []
        for call in self.store.calls():
            line = f"{call.path}?{call.query}"
            if "rewriteTo" in line or (call.download and call.place.startswith(("far/", "near/"))):
                moves.append(line)
            elif self.scheme == "s3" and call.method == "PUT" and call.place.startswith("bucket/"):
                moves += [] if ".mirror/" in call.place else [line]
        return moves


def spent() -> int:
    """What this process was charged."""
    return 10 * GB - remaining()
