"""All documents of a corpus in one random order, in shards of about the same size.

The order is that of a hash of the seed and each document's id. So it is the same however the corpus was divided before,
and nothing has to hold it as a whole:

1. `scatter` (over tasks) divides each shard among the output shards. It writes one file a shard: compressed pieces, and
   an index of where the pieces of each output shard are.
2. `gather` (over tasks) reads the pieces of an output shard from all files, and sorts them.

`scatter` holds up to 64 MB of documents, `gather` one output shard: choose enough shards that one fits into memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, join, open_to_read, read_json, sizes_below, write_json
from marin_rules.pipeline.core.fingerprints import DIGEST_BYTES, digest
from marin_rules.pipeline.core.records import Record
from marin_rules.pipeline.core.shard_map import Shard, ShardSettings, map_shards

_HELD_BYTES = 64 << 20
_HEAD = struct.Struct(f"<{DIGEST_BYTES}sI")
"""Before each document: its place in the order, and its length."""

_ORDER = "order"
"""Makes these hashes differ from those by which `sample` chooses: otherwise all documents of a sample with the same
seed, which have the lowest hashes, would go to the first shards."""

_INDEX = ".index.json"
_PIECES = ".pieces"


@dataclass(frozen=True)
class ScatterConfig:
    """The documents below `input_path`, divided among output shards."""

    input_path: str | InputName
    output_shards: int
    seed: int = 0
    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class GatherConfig:
    """The output shards of a shuffle, from the output of `scatter`."""

    scattered_path: str | InputName
    output_shards: int
    """As `scatter` had it."""

    output_format: str = ".jsonl.zst"
    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


def scatter(config: ScatterConfig) -> dict[str, Any]:
    """Write `<shard>.pieces` and `<shard>.index.json` for each shard."""
    if config.output_shards < 1:
        raise DataError(f"cannot shuffle into {config.output_shards} shards")

    def transform(shard: Shard, account: Account) -> Iterator[Record | bytes]:
        import orjson

        with into_place(join(config.output_path, f"{shard.name}{_PIECES}")) as file:
            pieces = _Pieces(file, config.output_shards)
            for row in shard.rows(account):
                line = row.line or orjson.dumps(row.record)
                pieces.add(digest(f"{config.seed} {_ORDER} {row.record['id']}"), line)
                yield line
            pieces.flush()
        write_json(join(config.output_path, f"{shard.name}{_INDEX}"), pieces.index)

    return map_shards(
        transform,
        str(config.input_path),
        config.output_path,
        output_format="",
        settings=config.shards,
        beside=(_PIECES, _INDEX),
    )


def gather(config: GatherConfig) -> dict[str, Any]:
    """Write `data-00000-of-00064.jsonl.zst` and so on, some of which may be empty."""
    folder, count = str(config.scattered_path), config.output_shards
    names = [name.removesuffix(_INDEX) for name in sizes_below(folder) if name.endswith(_INDEX)]
    indexes = {name: read_json(join(folder, f"{name}{_INDEX}")) for name in names}
    if not indexes:
        raise DataError(f"nothing was scattered below {folder}")
    if wrong := [name for name, index in indexes.items() if len(index) != count]:
        raise DataError(f"{wrong[0]} below {folder} was scattered to {len(indexes[wrong[0]])} shards, not to {count}")

    def transform(shard: Shard, account: Account) -> Iterator[Record | bytes]:
        number = int(shard.name.split("-")[1])
        documents: list[tuple[bytes, bytes]] = []
        for name, index in indexes.items():
            expected = len(documents) + index[number]["documents"]
            documents += _read_pieces(join(folder, f"{name}{_PIECES}"), index[number]["pieces"])
            if len(documents) != expected:
                raise DataError(f"{name}{_PIECES} below {folder} has other documents than its index: scatter again")
        for _, line in sorted(documents):
            account.read += 1
            account.bytes_read += len(line)
            yield line

    shards = [
        Shard(
            folder,
            f"data-{number:05}-of-{count:05}.jsonl",
            sum(index[number]["documents"] for index in indexes.values()),
        )
        for number in range(count)
    ]
    return map_shards(
        transform, folder, config.output_path, output_format=config.output_format, settings=config.shards, shards=shards
    )


class _Pieces:
    """Documents on their way to output shards; held until they are many, then written, each shard's in one piece."""

    def __init__(self, file: IO[bytes], count: int) -> None:
        import zstandard

        self._file = file
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._held: list[list[bytes]] = [[] for _ in range(count)]
        self._bytes = 0
        self.index: list[dict[str, Any]] = [{"documents": 0, "pieces": []} for _ in range(count)]

    def add(self, place: bytes, line: bytes) -> None:
        shard = int.from_bytes(place[:8], "big") * len(self._held) >> 64
        self._held[shard] += (_HEAD.pack(place, len(line)), line)
        self.index[shard]["documents"] += 1
        self._bytes += len(line)
        if self._bytes > _HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        for held, entry in zip(self._held, self.index, strict=True):
            if held:
                piece = self._compressor.compress(b"".join(held))
                entry["pieces"].append([self._file.tell(), len(piece)])
                self._file.write(piece)
                held.clear()
        self._bytes = 0


def _read_pieces(path: str, pieces: list[list[int]]) -> Iterator[tuple[bytes, bytes]]:
    import zstandard

    if not pieces:
        return
    with open_to_read(path) as file:
        for start, size in pieces:
            file.seek(start)
            data = zstandard.ZstdDecompressor().decompress(file.read(size))
            at = 0
            while at < len(data):
                place, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size
                yield place, data[at : at + length]
                at += length
