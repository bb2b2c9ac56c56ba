"""The package as one file: the same content is the same bytes, and is named after their digest.

    <prefix>/experiments/.code/<digest>.zip

Machines that do not see the driver's files fetch it from there (see `bootstrap`), and accept it only if its digest is
the one that their job was given. It is uploaded once, by the first run that needs it, and serves all later ones.

Only files of the package are in it, and settings that its caller adds. The user's own modules are packed into the
plan, which says exactly which ones a run needs; nothing else in the user's folders is examined.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import pkgutil
import re
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from marin_rules.errors import SettingsError
from marin_rules.project import PACKAGE, WORKFLOW
from marin_rules.software import bootstrap
from marin_rules.software.lock import OWN_LOCKS
from marin_rules.storage.files import explained_errors, read_bytes, write_atomic, write_new
from marin_rules.urls import is_url

_FOLDER = ".code"

_MOST_BYTES = 32 << 20
"""The limit for all files together: ten times the package. More means that something does not belong there."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The oldest date that the format knows: the time a file was written is not part of its content."""

_LEFT_OUT = frozenset({"__pycache__", WORKFLOW})

PLUGINS_FOLDER = os.path.join("engine", "plugins")
"""Where Snakemake finds our plug-ins, below the package of a checkout; an installed one has them elsewhere."""

_PLUGIN = re.compile(r"snakemake_\w+_plugin_marin(_\w+)?")

_BESIDE = ("rules", "profiles", "config", "envs")
"""Folders of the project that belong to what runs, beside its Snakefile."""


@dataclass(frozen=True)
class CodeArchive:
    """A zip file, in memory."""

    data: bytes

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> CodeArchive:
        """These files, by their paths in the archive."""
        buffer = io.BytesIO()
        # Not compressed: the output of a compressor depends on its version.
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(files):
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.create_system = 3
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, files[name])
        return cls(buffer.getvalue())

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def path_below(self, folder: str) -> str:
        """Where it is, below the folder of a prefix's experiments."""
        return os.path.join(folder, _FOLDER, f"{self.digest}.zip")


def package_files(package: Path = PACKAGE) -> dict[str, bytes]:
    """All files of the package, by their paths below the folder that holds it."""
    files: dict[str, bytes] = {}
    total = 0
    for path in _regular_files(package):
        total += path.stat().st_size
        if total > _MOST_BYTES:
            largest = max(_regular_files(package), key=lambda file: file.stat().st_size)
            raise SettingsError(
                f"{package} cannot be sent to machines that do not share it: it has more than {_MOST_BYTES >> 20} MB,"
                f" most of it {largest} ({largest.stat().st_size >> 20} MB). Move everything but code out of it."
            )
        try:
            files[str(path.relative_to(package.parent))] = path.read_bytes()
        except OSError as error:
            raise SettingsError(
                f"{path} cannot be sent to machines that do not share it: {error.strerror}. The package must be whole;"
                " give yourself the right to read it, or install it again."
            ) from error
    return files


def project_files(folder: Path) -> dict[str, bytes]:
    """What is beside the package in the project's `folder` (`Snakefile`, `rules/`, ...), placed where an installed
    package has it: for a process that runs the whole project as it was."""
    found = {}
    single = [folder / name for name in ("Snakefile", *OWN_LOCKS.values())]
    for path in [*single, *(file for name in _BESIDE for file in _regular_files(folder / name))]:
        found[str(PurePath(PACKAGE.name, WORKFLOW, path.relative_to(folder)))] = path.read_bytes()
    return found


def plugin_files() -> dict[str, bytes]:
    """Our plug-ins of Snakemake: an installed package has them beside it, a checkout (see `package_files`) within."""
    found: dict[str, bytes] = {}
    for name in (module.name for module in pkgutil.iter_modules() if _PLUGIN.fullmatch(module.name)):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            found |= folder_files(Path(spec.origin).parent, PurePath(PACKAGE.name, PLUGINS_FOLDER, name))
    return found


def folder_files(folder: Path, place: PurePath) -> dict[str, bytes]:
    """All files of a folder, for this place in an archive."""
    return {str(place / path.relative_to(folder)): path.read_bytes() for path in _regular_files(folder)}


def unpacked(archive: CodeArchive, folder: str) -> str:
    """The archive as files below `folder`, one of the user's own: unpacked by the first who needs it."""
    path = os.path.join(folder, archive.digest)
    if not bootstrap.is_whole(path):
        with explained_errors("unpack marin-rules to", path):
            bootstrap.unpack(archive.data, path)
    return path


def _regular_files(package: Path) -> Iterator[Path]:
    """Neither hidden files nor caches, pipes, sockets or dangling links. Links to files are as good as the files."""
    for folder, folders, names in os.walk(package):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if not name.startswith(".") and path.exists() and stat.S_ISREG(path.stat().st_mode):
                yield path


def publish(archive: CodeArchive, folder: str, say: Callable[[str], None]) -> str:
    """Put the archive below `folder`, a path or URL, unless it is there; returns where it is.

    Several drivers may do so at once: the second finds the same bytes. Other bytes under this name are damaged or
    somebody else's; no job would accept them, so they are replaced.
    """
    path = archive.path_below(folder)
    found = read_bytes(path)
    if found is None and is_url(path):
        found = archive.data if write_new(path, archive.data) else read_bytes(path)
    if found != archive.data:
        if found is not None:
            say(
                f"{path} was not what its name says (damaged, or put there by somebody else) and is replaced. Jobs"
                " check it, and have run none of it."
            )
        write_atomic(path, archive.data, mode=0o644)
    return path
