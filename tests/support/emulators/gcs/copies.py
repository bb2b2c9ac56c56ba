"""New objects from objects already stored: copies, rewrites of several calls, moves, compositions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from support.emulators.common.messages import Answer, Request, json_answer
from support.emulators.gcs import conditions
from support.emulators.gcs.errors import GcsError
from support.emulators.gcs.resources import object_document
from support.emulators.gcs.store import Store, StoredObject, settable

REWRITE_BYTES = 2**20
"""Rewritten by one call between locations: little, so that small tests see rewrites of several calls."""

_MOST_COMPONENTS = 32


@dataclass
class Rewrite:
    """A rewrite that has begun: nothing is visible at its destination before its last call."""

    source: StoredObject
    destination: tuple[str, str]
    written: int = 0


class Copies:
    """Copies within one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rewrites: dict[str, Rewrite] = {}

    def reset(self) -> None:
        self._rewrites.clear()

    def copy(self, source: StoredObject, bucket: str, name: str, request: Request) -> StoredObject:
        # Clients send the whole of what they know of the destination, the checksums of its last content too.
        fields = {**source.fields, **settable(request.json())}
        return self._store.write(bucket, name, source.data, fields, request.query, source.components)

    def rewrite(self, bucket: str, name: str, to_bucket: str, to_name: str, request: Request, url: str) -> Answer:
        source = self.source(bucket, name, request.query)
        self._store.check_write(to_bucket, to_name, request.query)
        token = request.query.get("rewriteToken")
        rewrite = self._rewrites.get(token) if token else Rewrite(source, (to_bucket, to_name))
        if rewrite is None or rewrite.source is not source or rewrite.destination != (to_bucket, to_name):
            raise GcsError(400, "Invalid rewriteToken")
        size = len(source.data)
        limit = size
        if self._store.bucket(bucket).location != self._store.bucket(to_bucket).location:
            limit = max(REWRITE_BYTES, int(request.query.get("maxBytesRewrittenPerCall", 0)))
        rewrite.written = min(size, rewrite.written + limit)
        progress = {
            "kind": "storage#rewriteResponse",
            "totalBytesRewritten": str(rewrite.written),
            "objectSize": str(size),
            "done": rewrite.written == size,
        }
        if rewrite.written < size:
            token = token or uuid.uuid4().hex
            self._rewrites[token] = rewrite
            return json_answer({**progress, "rewriteToken": token})
        # The token stays valid: a client whose last answer was lost asks with it again.
        written = self.copy(source, to_bucket, to_name, request)
        return json_answer({**progress, "resource": object_document(written, url)})

    def move(self, bucket: str, name: str, to_name: str, request: Request) -> StoredObject:
        source = self.source(bucket, name, request.query)
        written = self.copy(source, bucket, to_name, request)
        self._store.delete(source)
        return written

    def compose(self, bucket: str, name: str, request: Request) -> StoredObject:
        document = request.json()
        parts = document.get("sourceObjects", [])
        if not 1 <= len(parts) <= _MOST_COMPONENTS:
            raise GcsError(400, "The number of source components provided must be between 1 and 32.")
        sources = [self._component(bucket, part) for part in parts]
        fields = settable(document.get("destination", {}))
        data = b"".join(source.data for source in sources)
        components = sum(source.components or 1 for source in sources)
        return self._store.write(bucket, name, data, fields, request.query, components)

    def source(self, bucket: str, name: str, query: Mapping[str, str]) -> StoredObject:
        source = self._store.live(bucket, name, query.get("sourceGeneration"))
        conditions.check(source, query, prefix="ifSource")
        return source

    def _component(self, bucket: str, part: Mapping[str, Any]) -> StoredObject:
        generation = part.get("generation")
        source = self._store.live(bucket, part["name"], None if generation is None else str(generation))
        wanted = part.get("objectPreconditions", {})
        conditions.check(source, {key: str(value) for key, value in wanted.items()})
        return source
