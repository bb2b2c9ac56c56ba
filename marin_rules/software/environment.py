"""A Python environment of a step's own: what is in it, for which Python, and the name that follows from both.

Equal needs give an equal digest, wherever the environment is kept; the folder is never part of it. Frozen plans carry
environments as JSON values. This module only names them: `build` makes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from marin_rules.errors import SettingsError
from marin_rules.settings.user_folders import cache_folder
from marin_rules.software.lock import Lock
from marin_rules.storage.files import local_path
from marin_rules.urls import is_url

FOLDER_VARIABLE = "MARIN_ENVIRONMENTS"

_DIGITS = 8
_LONGEST_LABEL = 40
_LEADING_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Environment:
    """Requirements, and the interpreter that they are for."""

    requirements: tuple[str, ...]

    python: str
    """Major and minor version, with the letters of its ABI: `3.13`, `3.13t`. Functions are packed as bytecode, which is
    the same for all micro versions, and so is the ABI of compiled packages: a bug fix of Python changes no name."""

    implementation: str
    platform: str

    groups: tuple[str, ...] = ()
    """What the step asked for, for people: in the name, but not in the digest."""

    lock: Lock | None = None
    """What to install, if that was decided beforehand; `requirements` are then its pins."""

    @classmethod
    def here(cls, requirements: Sequence[str], groups: Sequence[str] = ()) -> Self:
        """These requirements for the interpreter that runs now."""
        return cls(
            requirements=tuple(sorted(set(requirements))),
            python=f"{sys.version_info.major}.{sys.version_info.minor}{sys.abiflags}",
            implementation=sys.implementation.name,
            platform=sysconfig.get_platform(),
            groups=tuple(groups),
        )

    @classmethod
    def of_groups(cls, groups: Sequence[str], folder: str, *, prefix: str) -> Self:
        """What a step needs that names these groups: see `requirements`."""
        # Imported here: the worker reads plans in environments that have no `packaging`.
        from marin_rules.software.requirements import resolve_groups

        needs = resolve_groups(groups, folder, prefix=prefix)
        if needs.lock is None or needs.locked_group is None:
            return cls.here(needs.requirements, groups)
        # Named after the lock alone: a step that asks for more, which the lock has, shares the environment.
        return replace(cls.here(needs.lock.pins, [needs.locked_group]), lock=needs.lock)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """The environment that `to_fields` described."""
        lock = None if fields["lock"] is None else Lock.from_fields(fields["lock"])
        lists = {name: tuple(fields[name]) for name in ("requirements", "groups")}
        return cls(**{**fields, **lists, "lock": lock})

    def to_fields(self) -> dict[str, Any]:
        """The environment as JSON values."""
        return asdict(self)

    @property
    def digest(self) -> str:
        identity: dict[str, Any] = {
            "requirements": self.requirements,
            "python": self.python,
            "implementation": self.implementation,
            "platform": self.platform,
        }
        if self.lock is not None:
            identity["lock"] = self.lock.sha256
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    @property
    def name(self) -> str:
        """The name of its folder: the groups, as far as they are short, and the beginning of the digest."""
        return f"{self._label()}-{self.digest[:_DIGITS]}"

    def is_for(self, other: Environment) -> bool:
        """Whether the interpreters of both are alike."""
        mine, others = (
            (environment.python, environment.implementation, environment.platform) for environment in (self, other)
        )
        return mine == others

    def describe_python(self) -> str:
        """The interpreter for people: `cpython 3.13 on linux-x86_64`."""
        return f"{self.implementation} {self.python} on {self.platform}"

    def _label(self) -> str:
        label = ""
        for group in self.groups:
            found = _LEADING_NAME.match(group.strip())
            word = re.sub(r"[._-]+", "-", found[0]).strip("-").lower() if found else ""
            longer = f"{label}-{word}".strip("-")
            if len(longer) > _LONGEST_LABEL:
                break
            label = longer
        return label or "python"


def environments_folder(of_cluster: str | None = None) -> str:
    """Where environments are kept: `MARIN_ENVIRONMENTS`, or else what the cluster names, or else the user's cache."""
    named = os.environ.get(FOLDER_VARIABLE) or of_cluster
    folder = named or os.path.join(cache_folder(), "environments")
    if is_url(folder):
        where = FOLDER_VARIABLE if os.environ.get(FOLDER_VARIABLE) else "the cluster file"
        raise SettingsError(
            f"{where} keeps environments in {folder}, but Python cannot start from an object store: name a folder that"
            " all machines share"
        )
    return os.path.abspath(os.path.expanduser(local_path(folder)))


@contextlib.contextmanager
def explained_errors(folder: str) -> Iterator[None]:
    """The error about the folder of environments, which names what to change."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise SettingsError(
            f"environments cannot be made in {folder}: {reason} ({error.filename or folder}). Fix that, or name"
            f" another folder in {FOLDER_VARIABLE}."
        ) from error
