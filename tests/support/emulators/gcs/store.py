"""Buckets and their live objects. No noncurrent versions: as a bucket without object versioning."""

from __future__ import annotations

import base64
import hashlib
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import google_crc32c

from support.emulators.common.history import History
from support.emulators.gcs import conditions
from support.emulators.gcs.errors import GcsError, no_such_bucket, no_such_object

SETTABLE = frozenset(
    {
        "cacheControl",
        "contentDisposition",
        "contentEncoding",
        "contentLanguage",
        "contentType",
        "customTime",
        "metadata",
        "storageClass",
    }
)
"""The fields of an object that a client chooses."""


def settable(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key in SETTABLE and value is not None}


@dataclass
class StoredObject:
    """One generation of an object."""

    bucket: str
    name: str
    data: bytes
    generation: int
    fields: dict[str, Any]
    metageneration: int = 1
    created: float = field(default_factory=time.time)
    updated: float = field(default_factory=time.time)
    components: int | None = None
    """How many parts it was composed of. Google gives such objects no MD5."""

    @cached_property
    def crc32c(self) -> str:
        return base64.b64encode(google_crc32c.Checksum(self.data).digest()).decode()

    @cached_property
    def md5(self) -> str:
        return base64.b64encode(hashlib.md5(self.data).digest()).decode()


@dataclass
class Bucket:
    name: str
    location: str
    fields: dict[str, Any] = field(default_factory=dict)
    metageneration: int = 1
    generation: int = 1
    created: float = field(default_factory=time.time)
    objects: dict[str, StoredObject] = field(default_factory=dict)


class Store:
    """All state of the emulator that clients can see, and its history."""

    def __init__(self) -> None:
        self.buckets: dict[str, Bucket] = {}
        self.history = History()
        # Generations grow as Google's do: microseconds of the time, and never twice the same.
        self._generations = itertools.count(time.time_ns() // 1000)

    def reset(self) -> None:
        self.buckets.clear()
        self.history.clear()

    def create_bucket(self, name: str, location: str, fields: Mapping[str, Any] | None = None) -> Bucket:
        if name in self.buckets:
            raise GcsError(409, "Your previous request to create the named bucket succeeded and you already own it.")
        bucket = Bucket(name, location.upper(), dict(fields or {}))
        self.buckets[name] = bucket
        return bucket

    def bucket(self, name: str) -> Bucket:
        try:
            return self.buckets[name]
        except KeyError:
            raise no_such_bucket() from None

    def live(self, bucket: str, name: str, generation: str | None = None) -> StoredObject:
        """The object, if it exists and is of this generation."""
        found = self.bucket(bucket).objects.get(name)
        if found is None or generation not in (None, "", str(found.generation)):
            raise no_such_object(bucket, name)
        return found

    def check_write(self, bucket: str, name: str, query: Mapping[str, str]) -> None:
        conditions.check(self.bucket(bucket).objects.get(name), query)

    def write(
        self,
        bucket: str,
        name: str,
        data: bytes,
        fields: Mapping[str, Any],
        query: Mapping[str, str],
        components: int | None = None,
    ) -> StoredObject:
        """A new generation, if the query's conditions hold and the content has the checksums that it came with."""
        self.check_write(bucket, name, query)
        chosen = settable(fields)
        generation = next(self._generations)
        written = StoredObject(bucket, name, bytes(data), generation, chosen, components=components)
        for field_name, actual in (("crc32c", written.crc32c), ("md5Hash", written.md5)):
            if fields.get(field_name) not in (None, actual):
                raise GcsError(400, f"Provided {field_name} {fields[field_name]} doesn't match calculated {actual}.")
        self.bucket(bucket).objects[name] = written
        self.history.record(bucket, name, written.data)
        return written

    def patch(self, found: StoredObject, changes: Mapping[str, Any]) -> None:
        for key in SETTABLE & changes.keys():
            value = changes[key]
            if key == "metadata" and value is not None:
                # A key set to null is removed; keys not mentioned stay.
                merged = found.fields.get("metadata", {}) | value
                value = {name: text for name, text in merged.items() if text is not None}
            if value is None:
                found.fields.pop(key, None)
            else:
                found.fields[key] = value
        found.metageneration += 1
        found.updated = time.time()

    def delete(self, found: StoredObject) -> None:
        del self.buckets[found.bucket].objects[found.name]
        self.history.record(found.bucket, found.name, None)
