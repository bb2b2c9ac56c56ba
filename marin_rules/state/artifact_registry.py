"""The artifact registry: names and dates for artifacts, wherever their data is.

    <root>/<namespace>/<name>/<version>.json = {"id", "version", "uri", "relative_path"}

The files are Marin's. An entry is written once and never changed: registering is atomic, on a disk and on the buckets
whose writes can be conditional, so if two register the same version, one gets an error. The root is that of
`MARIN_ARTIFACT_REGISTRY`, or `<prefix>/artifact_registry`; Marin's own, shared by all its regions, has to be named.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from datetime import date
from typing import Protocol

from marin_rules.errors import MarinRulesError
from marin_rules.storage.files import read_bytes, write_new
from marin_rules.storage.prefix import marin_prefix
from marin_rules.urls import is_url

REGISTRY_VARIABLE = "MARIN_ARTIFACT_REGISTRY"
_DEFAULT_FOLDER = "artifact_registry"

_ID = re.compile(r"(?P<namespace>[A-Za-z0-9_.-]+)/(?P<name>[A-Za-z0-9_.-]+)")
_VERSION = re.compile(r"(?P<date>\d{4}\.\d{2}\.\d{2})(?:-[A-Za-z0-9][A-Za-z0-9._-]*)?")


class ArtifactRegistryError(MarinRulesError):
    """The registry cannot answer, or refuses."""


class ArtifactNotFoundError(ArtifactRegistryError, KeyError):
    """Nothing is registered by this name and version."""

    def __init__(self, artifact_id: str, version: str, root: str = "") -> None:
        super().__init__((artifact_id, version))
        self.id, self.version, self.root = artifact_id, version, root

    def __str__(self) -> str:
        where = f" in the registry {self.root}" if self.root else ""
        return (
            f"there is no artifact {self.id!r} of version {self.version!r}{where}. {REGISTRY_VARIABLE} names another."
        )


class ArtifactAlreadyExistsError(ArtifactRegistryError):
    """The version is taken; `existing` says by what."""

    def __init__(self, existing: ArtifactEntry) -> None:
        super().__init__(
            f"artifact {existing.id!r} of version {existing.version!r} is registered already, at {existing.uri}: choose"
            " another version"
        )
        self.existing = existing


class InvalidArtifactIdError(ArtifactRegistryError, ValueError):
    """A name, version or address that no registry accepts."""


@dataclass(frozen=True)
class ArtifactEntry:
    """What is registered: the content of an entry's file."""

    id: str
    """`<namespace>/<name>`"""

    version: str
    """`YYYY.MM.DD`, or that with `-<anything>`."""

    uri: str
    """The folder of the artifact: absolute, or in a bucket."""

    relative_path: str | None = None
    """The same relative to the registrant's prefix: other regions may have a copy below theirs."""


class ArtifactRegistry(Protocol):
    """Where artifacts are looked up."""

    def register(self, artifact_id: str, version: str, uri: str) -> ArtifactEntry: ...

    def lookup(self, artifact_id: str, version: str) -> ArtifactEntry: ...


class FilesystemArtifactRegistry:
    """A registry in a folder, or below a URL of a bucket."""

    def __init__(self, root: str) -> None:
        if not isinstance(root, str):
            raise TypeError(f"the root of a registry is a folder or a URL, not {root!r}")
        if not root:
            raise ValueError("the root of a registry is a folder or a URL, and this one is empty")
        self._root = root.rstrip("/")

    def register(self, artifact_id: str, version: str, uri: str) -> ArtifactEntry:
        """Give a name and a version to the artifact at `uri`; `ArtifactAlreadyExistsError` if they are taken."""
        path = self._path(artifact_id, version)
        if not is_url(uri) and not uri.startswith("/"):
            raise InvalidArtifactIdError(f"{uri!r} is not absolute: others would look for it elsewhere")
        if is_url(self._root) and not is_url(uri):
            raise InvalidArtifactIdError(
                f"{uri!r} is on this machine, and {self._root} is for others too: copy it first"
            )
        entry = ArtifactEntry(artifact_id, version, uri, _relative(uri))
        if not write_new(path, json.dumps(asdict(entry)).encode()):
            raise ArtifactAlreadyExistsError(self.lookup(artifact_id, version))
        return entry

    def lookup(self, artifact_id: str, version: str) -> ArtifactEntry:
        """What is registered; `ArtifactNotFoundError` if nothing is."""
        path = self._path(artifact_id, version)
        data = read_bytes(path)
        if data is None:
            raise ArtifactNotFoundError(artifact_id, version, self._root)
        try:
            fields = json.loads(data)
            return ArtifactEntry(
                **{key: fields[key] for key in ("id", "version", "uri")}, relative_path=fields.get("relative_path")
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ArtifactRegistryError(f"{path} is not an entry of an artifact registry: {error!r}") from error

    def _path(self, artifact_id: str, version: str) -> str:
        found = _ID.fullmatch(artifact_id)
        if found is None or {found["namespace"], found["name"]} & {".", ".."}:
            raise InvalidArtifactIdError(
                f"artifact id {artifact_id!r}: write '<namespace>/<name>' with letters, digits, '_', '.', '-'"
            )
        dated = _VERSION.fullmatch(version)
        try:
            date.fromisoformat(dated["date"].replace(".", "-") if dated else "")
        except ValueError as error:
            raise InvalidArtifactIdError(
                f"artifact version {version!r}: write a date, 'YYYY.MM.DD' or 'YYYY.MM.DD-more'"
            ) from error
        return f"{self._root}/{artifact_id}/{version}.json"


_default: ContextVar[ArtifactRegistry | None] = ContextVar("marin_rules_artifact_registry", default=None)


def get_default_registry() -> ArtifactRegistry:
    """The registry that was set for this context, or else the one of the environment."""
    chosen = _default.get()
    if chosen is not None:
        return chosen
    root = os.environ.get(REGISTRY_VARIABLE) or os.path.join(marin_prefix(), _DEFAULT_FOLDER)
    return FilesystemArtifactRegistry(root)


def set_default_registry(registry: ArtifactRegistry | None) -> None:
    """Choose the registry of this context; None goes back to that of the environment."""
    _default.set(registry)


@contextlib.contextmanager
def use_default_registry(registry: ArtifactRegistry) -> Iterator[ArtifactRegistry]:
    """Choose a registry for the code inside the block."""
    token = _default.set(registry)
    try:
        yield registry
    finally:
        _default.reset(token)


def _relative(uri: str) -> str | None:
    prefix = marin_prefix().rstrip("/") + "/"
    return uri.removeprefix(prefix) if uri.startswith(prefix) else None
