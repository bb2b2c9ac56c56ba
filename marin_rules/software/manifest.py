"""The manifest of an environment: what was asked for, and exactly what is there, in `<environment>/marin-rules.json`.

It is written last, before the environment gets its name: a folder without one is not an environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from marin_rules.errors import MarinRulesError
from marin_rules.storage.files import read_bytes, write_atomic

MANIFEST_FILE = "marin-rules.json"


@dataclass(frozen=True)
class Manifest:
    """What an environment holds."""

    requirements: tuple[str, ...]
    python: str
    """The version of Python that it was made with, in full."""

    packages: Mapping[str, str]
    """The exact version of each installed package."""

    uv: str
    made: str
    """When, in UTC (ISO 8601)."""

    seconds: float
    """How long it took."""

    lock: Mapping[str, str] | None = None
    """The lock that it was made from: its file and its SHA-256."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """The manifest that `to_fields` described."""
        return cls(**{**fields, "requirements": tuple(fields["requirements"])})

    def to_fields(self) -> dict[str, Any]:
        """The manifest as JSON values."""
        return asdict(self)


def manifest_path(path: str) -> str:
    """Where the manifest of the environment at `path` is."""
    return os.path.join(path, MANIFEST_FILE)


def read_manifest(path: str) -> Manifest | None:
    """The manifest of the environment at `path`, None when there is no environment."""
    data = read_bytes(manifest_path(path))
    if data is None:
        return None
    try:
        return Manifest.from_fields(json.loads(data))
    except (ValueError, TypeError, KeyError) as error:
        raise MarinRulesError(
            f"{manifest_path(path)} cannot be read ({error}). Delete the folder {path} when no step runs in it: the"
            " next run makes it again."
        ) from error


def write_manifest(path: str, manifest: Manifest) -> None:
    """Record what is in the environment at `path`."""
    write_atomic(manifest_path(path), json.dumps(manifest.to_fields(), indent=2).encode() + b"\n", mode=0o644)
