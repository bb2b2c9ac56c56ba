"""What a project declares that it needs: dependencies, extras and dependency groups.

The user's project is read from its `pyproject.toml`, an installed one from its metadata. Texts are kept as they are
written; only the names of projects, extras and groups are normalised (PEP 503, 685 and 735).
"""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from marin_rules.errors import SettingsError
from marin_rules.settings.ownership import check_not_planted

_FILE = "pyproject.toml"
_TABLES = ("project", "dependency-groups")
_OWN_TOOL = "marin-rules"


@dataclass(frozen=True)
class IncludedGroup:
    """A place in a dependency group where another group belongs."""

    name: str


@dataclass(frozen=True)
class Project:
    """The needs of one project. The strings are requirements that have not been parsed yet."""

    source: str
    """Where this was read, for messages."""

    name: str = ""
    """Empty for a `pyproject.toml` that has dependency groups and no project."""

    dependencies: tuple[str, ...] = ()
    extras: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dependency_groups: Mapping[str, tuple[str | IncludedGroup, ...]] = field(default_factory=dict)
    locks: Mapping[str, Path] = field(default_factory=dict)
    """The lock files of groups, by group: of the project's own, or of those of marin-rules."""

    @property
    def groups(self) -> list[str]:
        """What a step can ask for by name."""
        return sorted({*self.extras, *self.dependency_groups})


def find_project(folder: str) -> Project | None:
    """The project of the nearest `pyproject.toml` at or above a folder; one that only configures tools is skipped."""
    start = Path(folder).resolve()
    for path in (parent / _FILE for parent in (start, *start.parents)):
        if not path.is_file():
            continue
        check_not_planted(str(path), str(path.parent), "the project's file")
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path} is not TOML: {error}") from error
        if any(table in content for table in _TABLES) or _OWN_TOOL in content.get("tool", {}):
            return _from_file(str(path), content)
    return None


def installed_project(name: str) -> Project | None:
    """The project of an installed distribution, None when it is not installed."""
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    requirements = [Requirement(text) for text in distribution.requires or ()]
    plain = [one for one in requirements if _applies(one, "")]
    return Project(
        source=f"the installed {name}",
        name=canonicalize_name(name),
        dependencies=tuple(map(str, plain)),
        extras={
            canonicalize_name(extra): tuple(
                str(one) for one in requirements if one not in plain and _applies(one, extra)
            )
            for extra in distribution.metadata.get_all("Provides-Extra") or ()
        },
    )


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _from_file(path: str, content: Mapping[str, Any]) -> Project:
    table = _table(path, "project", content.get("project", {}))
    name = table.get("name", "")
    extras = _table(path, "project.optional-dependencies", table.get("optional-dependencies", {}))
    groups = _table(path, "dependency-groups", content.get("dependency-groups", {}))
    own = _table(path, f"tool.{_OWN_TOOL}", _table(path, "tool", content.get("tool", {})).get(_OWN_TOOL, {}))
    locks = _table(path, f"tool.{_OWN_TOOL}.locks", own.get("locks", {}))
    project = Project(
        source=path,
        name=canonicalize_name(name) if isinstance(name, str) and name else "",
        dependencies=_texts(path, "project.dependencies", table.get("dependencies", [])),
        extras={
            canonicalize_name(extra): _texts(path, f"project.optional-dependencies.{extra}", texts)
            for extra, texts in extras.items()
        },
        dependency_groups={
            canonicalize_name(group): _entries(path, f"dependency-groups.{group}", entries)
            for group, entries in groups.items()
        },
        locks={canonicalize_name(group): _lock(path, group, file) for group, file in locks.items()},
    )
    return _with_dynamic(project, table.get("dynamic", []))


def _with_dynamic(project: Project, dynamic: Sequence[str]) -> Project:
    """What the file leaves to the build is taken from the installed project."""
    missing = [key for key in ("dependencies", "optional-dependencies") if key in dynamic]
    if not missing:
        return project
    installed = installed_project(project.name) if project.name else None
    if installed is None:
        raise SettingsError(
            f"{project.source}: project.dynamic leaves {' and '.join(missing)} to the build, and the project is not"
            " installed here. Install it (`pip install -e .`), or write them into the file."
        )
    return replace(
        project,
        dependencies=installed.dependencies if "dependencies" in missing else project.dependencies,
        extras=installed.extras if "optional-dependencies" in missing else project.extras,
    )


def _entries(path: str, where: str, value: object) -> tuple[str | IncludedGroup, ...]:
    return tuple(_entry(path, where, entry) for entry in _list(path, where, value))


def _entry(path: str, where: str, entry: object) -> str | IncludedGroup:
    if isinstance(entry, dict) and list(entry) == ["include-group"] and isinstance(entry["include-group"], str):
        return IncludedGroup(canonicalize_name(entry["include-group"]))
    return _text(path, where, entry)


def _texts(path: str, where: str, value: object) -> tuple[str, ...]:
    return tuple(_text(path, where, entry) for entry in _list(path, where, value))


def _lock(path: str, group: str, file: object) -> Path:
    if not isinstance(file, str) or not file:
        raise SettingsError(f"{path}: tool.{_OWN_TOOL}.locks.{group} is not the path of a lock file")
    return Path(path).parent / file


def _table(path: str, where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise SettingsError(f"{path}: {where} is not a table")
    return value


def _list(path: str, where: str, value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise SettingsError(f"{path}: {where} is not a list of requirements")
    return value


def _text(path: str, where: str, value: object) -> str:
    if not isinstance(value, str):
        raise SettingsError(f"{path}: {where} holds {value!r}, which is not a requirement: write a string")
    return value
