"""Paths below the prefix, and the names that the mirror keeps for itself.

A mirrored path is relative: `documents/x`, the same in every region. A path that climbs out (`..`) or is absolute is
refused, because it would read or write data that is not mirrored.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable

from marin_rules.storage.files import TEMPORARY_PREFIX

SCHEME = "mirror://"
FOLDER = ".mirror"
"""At the top of the prefix: the leases of copies that are being made. Never listed."""

_CONTROL_PREFIX = ".executor_"
_KEY_DIGITS = 20


def relative_path(path: str, roots: Iterable[str]) -> str:
    """The path below the prefix, or below whichever of `roots` it begins with; "" for the top itself."""
    given = path
    path = path.removeprefix(SCHEME)
    for root in roots:
        # A config may hold the whole path of a step's output, in this region or in another one.
        if path == root or path.startswith(root + "/"):
            path = path[len(root) + 1 :]
            break
    if path.startswith("/") or "://" in path:
        raise ValueError(
            f"{given!r} is not below the prefix nor in a bucket of the cluster. Write a path relative to the prefix, as"
            f" in {SCHEME}documents/x."
        )
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"{given!r} climbs out of the prefix. Write it without '..'.")
    if parts[:1] == [FOLDER]:
        raise ValueError(f"{given!r}: the folder {FOLDER} is the mirror's own. Choose another name.")
    return "/".join(parts)


def file_path(path: str) -> str:
    """The path, unless it is the top of the prefix, which is not a file and must not be removed."""
    if not path:
        raise ValueError(f"{SCHEME} names no file. Write a path relative to the prefix, as in {SCHEME}documents/x.")
    return path


def is_hidden(path: str) -> bool:
    """Whether listings leave the path out: leases, and what a copy that was killed has left."""
    name = posixpath.basename(path)
    return path.partition("/")[0] == FOLDER or (name.startswith(TEMPORARY_PREFIX) and name.endswith(".tmp"))


def is_control(path: str) -> bool:
    """Whether the path is a control file of a step, which says something about one region's copy only.

    A status copied from another region would mark a step as done whose data is not here.
    """
    return posixpath.basename(path).startswith(_CONTROL_PREFIX)


def short_hash(path: str) -> str:
    """A name for a path, of a length that every file system accepts."""
    return hashlib.sha256(path.encode()).hexdigest()[:_KEY_DIGITS]


def temporary_prefix(path: str) -> str:
    """How the names of unfinished copies of `path` begin."""
    return f"{TEMPORARY_PREFIX}mirror-{short_hash(path)}-"
