"""Listing objects: prefixes, delimiters, offsets, and pages whose tokens hold the last entry given."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from support.emulators.gcs.errors import GcsError
from support.emulators.gcs.store import Bucket, StoredObject

_LARGEST_PAGE = 1000


@dataclass(frozen=True)
class Page:
    objects: list[StoredObject]
    prefixes: list[str]
    next_token: str | None


def list_page(bucket: Bucket, query: Mapping[str, str]) -> Page:
    """One page. An entry is an object or a common prefix, and both count towards the page's size."""
    limit = min(int(query.get("maxResults") or _LARGEST_PAGE), _LARGEST_PAGE)
    last_given = _decoded(query["pageToken"]) if query.get("pageToken") else ""
    objects: list[StoredObject] = []
    prefixes: list[str] = []
    last = ""
    for entry, names in _entries(bucket, query):
        if entry <= last_given:
            continue
        if len(objects) + len(prefixes) >= limit:
            return Page(objects, prefixes, base64.urlsafe_b64encode(last.encode()).decode())
        if names is None:
            objects.append(bucket.objects[entry])
        else:
            prefixes.append(entry)
            if entry in names and query.get("includeTrailingDelimiter") == "true":
                objects.append(bucket.objects[entry])
        last = entry
    return Page(objects, prefixes, None)


def _entries(bucket: Bucket, query: Mapping[str, str]) -> Iterator[tuple[str, list[str] | None]]:
    """In order: an object's name and None, or a common prefix and the names under it."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    start, end = query.get("startOffset", ""), query.get("endOffset", "")
    grouped: dict[str, list[str] | None] = {}
    for name in sorted(bucket.objects):
        if not name.startswith(prefix) or name < start or (end and name >= end):
            continue
        head, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
        if not found:
            grouped[name] = None
        else:
            under = grouped.setdefault(prefix + head + delimiter, [])
            assert under is not None, "an object cannot have the name of a prefix: it ends with the delimiter"
            under.append(name)
    yield from grouped.items()


def _decoded(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token).decode()
    except ValueError:
        raise GcsError(400, "Invalid pageToken") from None
