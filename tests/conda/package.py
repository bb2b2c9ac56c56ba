"""Conda's package format, as far as the test channel needs it: an archive of files that `info/` describes."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rattler import Subdir


@dataclass(frozen=True)
class Package:
    """A package that is still to be written."""

    name: str
    version: str

    files: Mapping[str, bytes | Path]
    """What each file holds, or for a link the path that it leads to. Everything below `bin/` can be executed."""

    depends: Sequence[str] = ()

    is_noarch_python: bool = False
    """Its `site-packages/` goes wherever the environment's Python has that folder."""

    @property
    def subdir(self) -> str:
        return "noarch" if self.is_noarch_python else str(Subdir.current())

    @property
    def build(self) -> str:
        return "py_0" if self.is_noarch_python else "0"

    def write(self, channel: Path) -> None:
        """Write the package where it belongs in the folder of a channel."""
        path = channel / self.subdir / f"{self.name}-{self.version}-{self.build}.tar.bz2"
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w:bz2", compresslevel=1) as archive:
            for name, document in self._description().items():
                _add(archive, f"info/{name}", json.dumps(document).encode())
            for name, content in self.files.items():
                _add(archive, name, content)

    def _description(self) -> dict[str, object]:
        index: dict[str, object] = {
            "name": self.name,
            "version": self.version,
            "build": self.build,
            "build_number": 0,
            "depends": list(self.depends),
            "subdir": self.subdir,
        }
        paths = [_described(path, content) for path, content in self.files.items()]
        description: dict[str, object] = {"index.json": index, "paths.json": {"paths": paths, "paths_version": 1}}
        if self.is_noarch_python:
            index["noarch"] = "python"
            description["link.json"] = {"noarch": {"type": "python"}, "package_metadata_version": 1}
        return description


def _described(path: str, content: bytes | Path) -> dict[str, object]:
    if isinstance(content, Path):
        return {"_path": path, "path_type": "softlink"}
    digest = hashlib.sha256(content).hexdigest()
    return {"_path": path, "path_type": "hardlink", "sha256": digest, "size_in_bytes": len(content)}


def _add(archive: tarfile.TarFile, path: str, content: bytes | Path) -> None:
    member = tarfile.TarInfo(path)
    if isinstance(content, Path):
        member.type, member.linkname = tarfile.SYMTYPE, str(content)
        archive.addfile(member)
        return
    member.size = len(content)
    member.mode = 0o755 if path.startswith("bin/") else 0o644
    archive.addfile(member, io.BytesIO(content))
