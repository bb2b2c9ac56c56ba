"""Token caches as Levanter reads them: a folder per shard, and one ledger above them.

Each shard is written by one process, in the order of its documents, through Levanter's own store. The ledger above them
(layout `sharded`) names them in their order; nothing is copied together. No file names a path outside the cache, a
process or a time: the same documents are the same bytes, and a cache can be moved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import join, read_json, write_json

if TYPE_CHECKING:
    from marin_rules.pipeline.core.encoding import Tokens

LEDGER = "shard_ledger.json"
_DIGEST = "sha256"
"""Of what a shard holds, in its ledger's metadata."""

_HELD_TOKENS = 8 << 20
"""Tokens that wait to be written: many, because each write rewrites the store's last file, of up to 128 million."""


class TokenCacheWriter:
    """The cache of one shard; whatever is there from an earlier attempt is replaced. Done once `close` has returned."""

    def __init__(self, path: str, fields: Sequence[str]) -> None:
        import numpy
        from levanter.store.tree_store import TreeStore

        self._path = path
        self._fields = tuple(fields)
        exemplar = {name: numpy.zeros((0,), numpy.int32) for name in fields}
        self._store = TreeStore.open(exemplar, path, mode="w", cache_metadata=True)
        self._held: list[dict[str, Tokens]] = []
        self._held_tokens = 0
        self._digest = hashlib.sha256()
        self.documents = 0
        self.tokens = 0

    def add(self, row: dict[str, Tokens]) -> None:
        """A document: arrays of the same length, one for each field."""
        self._held.append(row)
        import numpy

        size = len(row[self._fields[0]])
        for name in self._fields:
            self._digest.update(size.to_bytes(8, "little") + numpy.asarray(row[name], "<i4").tobytes())
        self.documents += 1
        self.tokens += size
        self._held_tokens += size
        if self._held_tokens >= _HELD_TOKENS:
            self._flush()

    def close(self) -> None:
        self._flush()
        rows = [("", self.documents, self.tokens)]
        metadata = {_DIGEST: self._digest.hexdigest()}
        write_json(join(self._path, LEDGER), ledger(rows, self._fields, layout="consolidated", metadata=metadata))

    def _flush(self) -> None:
        if self._held:
            self._store.extend(self._held)
        self._held, self._held_tokens = [], 0


def ledger(
    shards: Sequence[tuple[str, int, int]], fields: Sequence[str], *, layout: str, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Levanter's account of a cache. `shards` are names with their documents and tokens."""
    from levanter.store.cache import CacheLedger, CacheMetadata

    def by_field(tokens: int) -> dict[str, int]:
        return dict.fromkeys(fields, tokens)

    written: dict[str, Any] = CacheLedger(
        total_num_rows=sum(documents for _, documents, _ in shards),
        shard_rows={name: documents for name, documents, _ in shards},
        is_finished=True,
        finished_shards=[name for name, _, _ in shards],
        field_counts=by_field(sum(tokens for _, _, tokens in shards)),
        field_counts_by_shard={name: by_field(tokens) for name, _, tokens in shards} if layout == "sharded" else {},
        layout=layout,
        metadata=CacheMetadata(dict(metadata)),
    ).to_dict()
    return written


def check_shard_cache(path: str, documents: int, tokens: int) -> str:
    """The digest of a shard's cache, if it exists and holds as much as its counts say."""
    found = read_json(join(path, LEDGER))
    counts = (found.get("total_num_rows"), found.get("field_counts", {}).get("input_ids")) if found else None
    if counts != (documents, tokens):
        raise DataError(
            f"the cache {path} should have {documents} documents and {tokens} tokens, but"
            f" {'is not there' if counts is None else f'has {counts[0]} and {counts[1]}'}."
            " Delete the step's output and run it again"
        )
    return str(found["metadata"]["preprocessor_metadata"].get(_DIGEST, ""))
