"""A lock: the exact versions of everything in an environment, with the hashes of their files.

It is part of the frozen plan, so that every machine builds the same environment, whether or not it sees the file. This
module only holds one; `lock_file` reads it, and knows what may be in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

_OWN_GROUPS = ("data", "fasttext", "gguf", "train", "train-gpu", "train-tpu")
OWN_LOCKS = {group: f"requirements/{group}.txt" for group in _OWN_GROUPS}
"""The locks of marin-rules' own groups, below the project's folder; an installed package carries them, too."""


@dataclass(frozen=True)
class Lock:
    """What a lock file says for one interpreter, as lines for uv: `name==version --hash=sha256:...`."""

    file: str
    """The file's path, for people."""

    sha256: str
    """The digest of the whole file."""

    wheels: tuple[str, ...]
    sources: tuple[str, ...] = ()
    """Packages that the lock wants built from source (`--no-binary NAME`), with what `wheels` has for that."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """The lock that `dataclasses.asdict` described."""
        return cls(**{**fields, "wheels": tuple(fields["wheels"]), "sources": tuple(fields["sources"])})

    @property
    def pins(self) -> tuple[str, ...]:
        """All requirements, without their hashes."""
        return tuple(sorted(line.partition(" --hash")[0] for line in (*self.wheels, *self.sources)))

    def to_record(self) -> dict[str, str]:
        """What is recorded about a step that ran with it."""
        return {"file": self.file, "sha256": self.sha256}
