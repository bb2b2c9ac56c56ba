"""From the groups that a step names to what has to be installed for it.

A group is, in this order: an extra or a dependency group of the user's project, an extra of marin-rules, or a
requirement (PEP 508). What the user's project depends on and what the worker imports is added to that.
marin-rules is never among the requirements, nor is Snakemake for its sake: a step's environment finds the package of
the driver (see `package`). So `marin-rules[gcp]` stands for the requirements of that extra alone.

Markers are decided here, for the running interpreter, since the environment is made for it.

A group that has a lock (`tool.marin-rules.locks` in the user's file; `OWN_LOCKS` of marin-rules) is installed as the
lock says. Then the requirements are a condition: the lock must satisfy everything that the step needs, or the step is
refused. Nothing is ever added to a lock, because it would have no hash.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from marin_rules.errors import SettingsError
from marin_rules.project import project_folder
from marin_rules.software.credentials import has_credentials, without_credentials
from marin_rules.software.lock import OWN_LOCKS, Lock
from marin_rules.software.lock_file import missing_from, read_lock
from marin_rules.software.projects import IncludedGroup, Project, find_project, installed_project
from marin_rules.urls import split_url

OWN_NAME = "marin-rules"

_WORKER_NEEDS = ("cloudpickle", "fsspec", "pyyaml")
_STORE_NEEDS = {"gs": ("gcp", ("gcsfs", "google-cloud-storage")), "s3": ("s3", ("s3fs", "botocore"))}
"""For each scheme of a prefix: what the worker imports, and the extra of ours that has the bounds."""

_ARGUMENT = "pip_dependency_groups"
_MOST_NAMED = 5
_BARE_NAME = re.compile(r"[A-Za-z0-9._-]+")
_ALMOST = 0.8
"""How similar (by difflib) two names are that differ by one typo."""


@dataclass(frozen=True)
class Needs:
    """What a step needs that names some groups."""

    requirements: tuple[str, ...]
    """Sorted. For a locked environment only a condition: `lock` satisfies them all."""

    lock: Lock | None = None
    locked_group: str | None = None
    """The group that the lock is of."""


def resolve_groups(groups: Sequence[str], folder: str, *, prefix: str) -> Needs:
    """What a step needs that names these groups; `folder` is where its experiment is."""
    resolution = _resolve(groups, folder, prefixes=[prefix])
    requirements = tuple(sorted(resolution.found))
    if not resolution.locks:
        return Needs(requirements)
    group, lock = _satisfying_lock(resolution.locks, requirements, groups)
    return Needs(requirements, lock, group)


def lock_input(group: str, folder: str) -> tuple[tuple[str, ...], Path]:
    """What a lock of this group has to satisfy, for a prefix of any kind, and the file that it is written to."""
    stores = [f"{scheme}://" for scheme in _STORE_NEEDS]
    resolution = _resolve([group], folder, prefixes=["", *stores], keep_markers=True)
    if not resolution.locks:
        raise SettingsError(
            f"the group {group!r} has no lock file. Name one in {resolution.users_file}: `[tool.marin-rules.locks]`,"
            f' `{group} = "requirements/{group}.txt"`.'
        )
    (path,) = resolution.locks.values()
    return tuple(sorted(resolution.found)), path


def _satisfying_lock(paths: dict[str, Path], requirements: Sequence[str], groups: Sequence[str]) -> tuple[str, Lock]:
    """The lock, among those of the groups, that has all the requirements."""
    complaints = []
    for group, path in paths.items():
        lock = read_lock(path, name=f"{path.parent.name}/{path.name}")
        missing = missing_from(lock, requirements)
        if not missing:
            return group, lock
        complaints.append(f"the lock of {group!r}, {path}, does not satisfy {_listed(missing)}")
    beside = f" in one step with {' and '.join(map(repr, paths))}" if len(groups) > 1 else ""
    raise SettingsError(
        f"{'; '.join(complaints)}. An environment with a lock has what the lock says and nothing else: add that to a"
        f" group with a lock of your own{beside}, or compile the lock again (docs/environments.md#locks)."
    )


def _listed(texts: Sequence[str]) -> str:
    return ", ".join([*texts[:_MOST_NAMED], *(["..."] if len(texts) > _MOST_NAMED else [])])


def _resolve(groups: Sequence[str], folder: str, *, prefixes: Sequence[str], keep_markers: bool = False) -> _Resolution:
    own = installed_project(OWN_NAME)
    if own is None:
        raise SettingsError(
            f"cannot resolve the step's environment: {OWN_NAME} is not installed here. Install it with `pip install`"
            " (`make setup` in a checkout)"
        )
    users = find_project(folder)
    projects = [own] if users is None or users.name == own.name else [users, own]
    resolution = _Resolution(projects, keep_markers)
    for group in groups:
        resolution.take_group(group)
    for project in projects[:-1]:
        for text in project.dependencies:
            resolution.take(text, project.source)
    for prefix in prefixes:
        for text, extra in _needs_of_worker(own, prefix):
            resolution.take(text, own.source, extra)
    return resolution


def worker_requirements(prefix: str) -> tuple[str, ...]:
    """What a Python needs to run a worker, in exactly the versions that are installed here."""
    return _as_installed(text for text, _ in _needs_of_worker(_installed(), prefix))


def driver_requirements(prefix: str) -> tuple[str, ...]:
    """The same for a driver: everything that marin-rules itself depends on, and the clients of the prefix's store."""
    own, scheme = _installed(), split_url(prefix)[0]
    resolution = _Resolution([own])
    for text in own.dependencies:
        resolution.take(text, own.source)
    if scheme in _STORE_NEEDS:
        extra = _STORE_NEEDS[scheme][0]
        for text in own.extras[extra]:
            resolution.take(text, own.source, extra)
    return _as_installed(resolution.found)


def _installed() -> Project:
    own = installed_project(OWN_NAME)
    if own is None:
        raise SettingsError(
            f"{OWN_NAME} is not installed here: install it with `pip install` (`make setup` in a checkout)"
        )
    return own


def _as_installed(requirements: Iterable[str]) -> tuple[str, ...]:
    from importlib.metadata import version

    names = {canonicalize_name(Requirement(text).name) for text in requirements}
    return tuple(f"{name}=={version(name)}" for name in sorted(names))


class _Resolution:
    """What was found so far, in one or two projects that may refer to themselves and to each other."""

    def __init__(self, projects: Sequence[Project], keep_markers: bool = False) -> None:
        self.found: set[str] = set()
        self.locks: dict[str, Path] = {}
        """The lock files of the groups that were named, by group."""

        self.users_file = projects[0].source if len(projects) > 1 else "a pyproject.toml beside the experiment"
        self._keep_markers = keep_markers
        self._projects = projects
        self._by_name = {project.name: project for project in projects if project.name}
        for project in projects:
            for group in project.locks:
                if group not in self._names():
                    raise SettingsError(
                        f"{project.source}: tool.marin-rules.locks names {group!r}, which is not a group."
                        f" {self._known()}"
                    )

    def take_group(self, group: str) -> None:
        """Whatever this group of the experiment is."""
        if not isinstance(group, str) or not group.strip():
            raise SettingsError(f"{_ARGUMENT} has {group!r}: write the name of a group, or a requirement")
        name = canonicalize_name(group.strip())
        for project in self._projects:
            if name in project.groups:
                self._note_lock(project, name)
            if name in project.extras:
                return self._take_extra(project, name, _ARGUMENT, ())
            if name in project.dependency_groups:
                return self._take_dependency_group(project, name, _ARGUMENT, ())
        self._refuse_slips(group.strip())
        try:
            requirement = Requirement(group)
        except InvalidRequirement:
            close = difflib.get_close_matches(name, self._names(), n=1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise SettingsError(
                f"{_ARGUMENT} has {without_credentials(group)!r}, which is neither a group nor a requirement."
                f" {hint}{self._known()}"
            ) from None
        named = self._by_name.get(canonicalize_name(requirement.name))
        if named is not None:
            for extra in sorted(requirement.extras):
                self._note_lock(named, canonicalize_name(extra))
        self.take(group, _ARGUMENT)

    def take(self, text: str, source: str, extra: str = "", within: tuple[str, ...] = ()) -> None:
        """One requirement, or what it stands for if it names one of the projects."""
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            raise SettingsError(f"{source} has {without_credentials(text)!r}, which is not a requirement") from None
        marker = requirement.marker
        if marker is not None and self._keep_markers and "extra" not in str(marker):
            pass  # For compiling for several interpreters.
        elif marker is not None:
            if not marker.evaluate({"extra": extra}):
                return
            requirement.marker = None
        requirement.name = canonicalize_name(requirement.name)
        project = self._by_name.get(requirement.name)
        if project is not None:
            for one in sorted(requirement.extras):
                self._take_extra(project, canonicalize_name(one), source, within)
            return
        if requirement.url is not None and has_credentials(requirement.url):
            raise SettingsError(
                f"{source} has {without_credentials(requirement.url)!r} for {requirement.name}: there are credentials"
                " in it, and requirements are recorded. Write ${NAME} for the secret, and set that variable where"
                " the environment is made."
            )
        self.found.add(_written(requirement))

    def _note_lock(self, project: Project, group: str) -> None:
        """Remember the lock of a group that was named: the user's for it, else ours."""
        for one in self._projects:
            if group in one.locks:
                self.locks[group] = one.locks[group]
                return
        if project.name == OWN_NAME and group in OWN_LOCKS:
            self.locks[group] = project_folder() / OWN_LOCKS[group]

    def _take_extra(self, project: Project, extra: str, source: str, within: tuple[str, ...]) -> None:
        if extra not in project.extras:
            raise SettingsError(f"{source} asks for {project.name}[{extra}], which does not exist. {self._known()}")
        within = _one_deeper(f"{project.name}[{extra}]", project, within)
        for text in project.extras[extra]:
            self.take(text, project.source, extra, within)

    def _take_dependency_group(self, project: Project, group: str, source: str, within: tuple[str, ...]) -> None:
        if group not in project.dependency_groups:
            raise SettingsError(f"{source} includes the group {group!r}, which does not exist. {self._known()}")
        within = _one_deeper(group, project, within)
        for entry in project.dependency_groups[group]:
            if isinstance(entry, IncludedGroup):
                self._take_dependency_group(project, entry.name, project.source, within)
            else:
                self.take(entry, project.source, within=within)

    def _refuse_slips(self, group: str) -> None:
        """A mistyped group must not become some stranger's package."""
        close = difflib.get_close_matches(canonicalize_name(group), self._names(), n=1, cutoff=_ALMOST)
        if close and abs(len(close[0]) - len(group)) <= 1 and _BARE_NAME.fullmatch(group):
            raise SettingsError(
                f"{_ARGUMENT} has {group!r}, which is not a group. Did you mean {close[0]!r}? If you do mean a package"
                f" of that name, write {group + '>=0'!r}. {self._known()}"
            )

    def _names(self) -> list[str]:
        return [name for project in self._projects for name in project.groups]

    def _known(self) -> str:
        lists = [f"{', '.join(project.groups)} ({project.source})" for project in self._projects if project.groups]
        return f"Known groups: {'; '.join(lists)}."


def _written(requirement: Requirement) -> str:
    """A requirement in one spelling, whatever the version of `packaging`: names of environments follow from it."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    where = f" @ {requirement.url}" if requirement.url else ",".join(sorted(map(str, requirement.specifier)))
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}{extras}{where}{marker}"


def _one_deeper(label: str, project: Project, within: tuple[str, ...]) -> tuple[str, ...]:
    if label in within:
        circle = " -> ".join((*within[within.index(label) :], label))
        raise SettingsError(f"{project.source}: groups include each other in a circle, {circle}. Take one of them out.")
    return (*within, label)


def _needs_of_worker(own: Project, prefix: str) -> list[tuple[str, str]]:
    """What the worker imports in the step's environment, within our own bounds, each with the extra that has it."""
    needs = [(text, "") for text in _named(own.dependencies, _WORKER_NEEDS)]
    scheme = split_url(prefix)[0]
    if scheme in _STORE_NEEDS:
        extra, names = _STORE_NEEDS[scheme]
        needs += [(text, extra) for text in _named(own.extras[extra], names)]
    return needs


def _named(texts: Sequence[str], names: Sequence[str]) -> list[str]:
    return [text for text in texts if canonicalize_name(Requirement(text).name) in names]
