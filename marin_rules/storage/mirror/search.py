"""Where data is, across all places. Nothing is copied or charged here.

The prefix wins over the sources, and a near source over a far one. A place that denies access or does not answer is
skipped with a warning if another one has the data; if none has, its error is raised, because then it cannot be said
that the data does not exist.
"""

from __future__ import annotations

import errno
import logging
import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from marin_rules.storage.explain import StorageError, explained_store_errors
from marin_rules.storage.guard import already_charged
from marin_rules.storage.mirror.concurrency import each
from marin_rules.storage.mirror.paths import SCHEME, is_control, is_hidden
from marin_rules.storage.mirror.places import Place, home, sources

logger = logging.getLogger(__name__)

_PATHS_AT_ONCE = 16
_LISTED_FROM = 4
"""From this many files of one directory on, it is listed instead of asking for each."""


@dataclass(frozen=True)
class Found:
    """A file or directory, and what its place says about it."""

    path: str
    place: Place
    details: dict[str, Any]

    @property
    def is_file(self) -> bool:
        return str(self.details.get("type", "file")) == "file"

    @property
    def size(self) -> int:
        return int(self.details.get("size") or 0)

    @property
    def url(self) -> str:
        return self.place.url(self.path)

    @property
    def key(self) -> str:
        return self.place.key(self.path)

    @property
    def info(self) -> dict[str, Any]:
        """In fsspec's format."""
        return {**self.details, "name": self.path, "size": self.details.get("size"), "type": self.details["type"]}


def look_up(path: str) -> Found:
    """The file or directory; `FileNotFoundError` if it is nowhere."""
    here = home()
    found = look_at(here, path)
    return found if found is not None else look_elsewhere(path)


def look_elsewhere(path: str) -> Found:
    """The same, but not at home."""
    answers, troubles = _ask(_sources_of(path), lambda place: look_at(place, path))
    found = [answer for answer in answers if answer is not None]
    best = next((answer for answer in found if answer.is_file), found[0] if found else None)
    if best is None:
        raise _missing(path, troubles)
    _warn(path, troubles)
    return best


def look_up_many(paths: Iterable[str]) -> dict[str, Found]:
    """Each of the paths, with few calls where many are in one directory; `FileNotFoundError` if one is nowhere."""
    by_directory: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        by_directory.setdefault(posixpath.dirname(path), []).append(path)
    alone: list[str] = []
    listed: list[str] = []
    for members in by_directory.values():
        (listed if len(members) >= _LISTED_FROM else alone).extend(members)
    found: dict[str, Found] = {}
    directories = dict.fromkeys(map(posixpath.dirname, listed))
    for listing in each(directories, list_directory, at_once=_PATHS_AT_ONCE):
        found |= listing
    # A listing is all that is known: a file that is not in it gets the error that says so.
    alone += [path for path in listed if path not in found]
    found |= {answer.path: answer for answer in each(alone, look_up, at_once=_PATHS_AT_ONCE)}
    return found


def list_directory(path: str) -> dict[str, Found]:
    """What is directly in a directory; of a file, the file itself."""
    return _union(path, lambda place: _listed(place, place.filesystem().ls(place.key(path), detail=True)))


def find(path: str, *, maxdepth: int | None = None, withdirs: bool = False) -> dict[str, Found]:
    """All files below a path, by path; of a file, the file itself. Empty if there is nothing."""

    def ask(place: Place) -> dict[str, Found]:
        listing = place.filesystem().find(place.key(path), maxdepth=maxdepth, withdirs=withdirs, detail=True)
        if any(not details for details in listing.values()):
            # fsspec's way to say that the path is a file.
            alone = look_at(place, path)
            return {} if alone is None else {path: alone}
        found = _listed(place, listing.values())
        return {name: entry for name, entry in found.items() if withdirs or entry.is_file}

    try:
        return _union(path, ask)
    except FileNotFoundError:
        return {}


def _union(path: str, ask: Callable[[Place], dict[str, Found]]) -> dict[str, Found]:
    def answer(place: Place) -> dict[str, Found] | None:
        with already_charged(), explained_store_errors("list", place.url(path)):
            try:
                return ask(place)
            except (FileNotFoundError, NotADirectoryError):
                return None

    here = home()
    answers, troubles = _ask([here, *_sources_of(path)], answer)
    if not any(answers):
        # An empty directory at the prefix is not a missing one.
        if any(listing is not None for listing in answers) and not troubles:
            return {}
        raise _missing(path, troubles)
    _warn(path, troubles)
    found: dict[str, Found] = {}
    for listing in answers:
        for name, entry in (listing or {}).items():
            if entry.place.root == here.root or not is_control(name):
                found.setdefault(name, entry)
    return dict(sorted(found.items()))


def _listed(place: Place, entries: Iterable[dict[str, Any]]) -> dict[str, Found]:
    found = {}
    for details in entries:
        path = place.relative(str(details["name"]))
        if not path or is_hidden(path):
            continue
        if str(details["name"]).endswith("/") and not details.get("size"):
            # An object that some tools write to show a directory.
            details = {**details, "type": "directory"}
        found[path] = Found(path, place, details)
    return found


def look_at(place: Place, path: str) -> Found | None:
    """The file or directory in one place, None if it is not there."""
    with already_charged(), explained_store_errors("look at", place.url(path)):
        try:
            details = place.filesystem().info(place.key(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
    return Found(path, place, details)


def _sources_of(path: str) -> list[Place]:
    return [] if is_control(path) else sources()


def _ask[Answer](
    places: list[Place], question: Callable[[Place], Answer | None]
) -> tuple[list[Answer | None], list[StorageError]]:
    troubles: list[StorageError] = []

    def ask(place: Place) -> Answer | None:
        try:
            return question(place)
        except StorageError as error:
            troubles.append(error)
            return None

    return each(places, ask, at_once=_PATHS_AT_ONCE), troubles


def _missing(path: str, troubles: list[StorageError]) -> OSError:
    places = ", ".join(place.root for place in [home(), *_sources_of(path)])
    if troubles:
        reasons = "; ".join(sorted(map(str, troubles)))
        return StorageError(
            troubles[0].errno,
            f"cannot say where {SCHEME}{path} is: it is not in the places that answered (of {places}), and {reasons}",
            SCHEME + path,
        )
    hint = "Check its name." if sources() else "Check its name, or set MARIN_CLUSTER so that more buckets are searched."
    return FileNotFoundError(errno.ENOENT, f"no such file in any of {places}. {hint}", SCHEME + path)


def _warn(path: str, troubles: list[StorageError]) -> None:
    for trouble in troubles:
        logger.warning("looking for %s%s without one place: %s", SCHEME, path, trouble)
