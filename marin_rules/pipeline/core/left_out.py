"""What a stage has left out of a shard, in files beside its result.

    rejects/<shard>.jsonl     bad records, with reasons; only if there are any
    dropped/<shard>.csv.zst   ids of good records that the stage was asked to leave out, with reasons; only of stages
                              that give ids, and only if there are any

Later stages mistake neither for data: they know the name `rejects/`, and `.csv.zst` is not a shard format.
"""

from __future__ import annotations

import contextlib
import csv
import io
from typing import IO, Any

from marin_rules.pipeline.core.files import into_place, join, remove_file, size_of, sizes_below
from marin_rules.pipeline.core.shard_files import chunks_of

REJECTS = "rejects"
"""The folder of a stage's output whose `.jsonl` files are not shards."""

DROPPED = "dropped"
_DROPPED_SUFFIX = ".csv.zst"


class LeftOut:
    """The files of one shard. Each exists once the block has succeeded, if it has any content."""

    def __init__(self, output_path: str, shard: str) -> None:
        self._rejects_path = join(output_path, REJECTS, f"{shard}.jsonl")
        self._dropped_path = join(output_path, DROPPED, f"{shard}{_DROPPED_SUFFIX}")
        self._stack = contextlib.ExitStack()
        self._rejects: IO[bytes] | None = None
        self._dropped: Any = None

    def reject(self, row: dict[str, Any]) -> None:
        import orjson

        if self._rejects is None:
            self._rejects = self._stack.enter_context(into_place(self._rejects_path))
        self._rejects.write(orjson.dumps(row) + b"\n")

    def drop(self, id: str, reason: str) -> None:
        if self._dropped is None:
            import zstandard

            file = self._stack.enter_context(into_place(self._dropped_path))
            compressed = zstandard.ZstdCompressor().stream_writer(file, closefd=False)
            text = io.TextIOWrapper(compressed, encoding="utf-8", newline="")
            self._stack.callback(text.close)
            self._dropped = csv.writer(text, lineterminator="\n")
            self._dropped.writerow(("id", "reason"))
        self._dropped.writerow((id, reason))

    def remove(self) -> None:
        """Those of an earlier attempt."""
        remove_file(self._rejects_path)
        remove_file(self._dropped_path)

    def __enter__(self) -> LeftOut:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)


def dropped_from(output_path: str, shard: str) -> dict[str, str]:
    """Why records of a shard were dropped, by their ids; those of one shard are held in memory."""
    path = join(output_path, DROPPED, f"{shard}{_DROPPED_SUFFIX}")
    return {} if size_of(path) is None else _read(path)


def dropped_below(output_path: str) -> dict[str, str]:
    """The same of all shards, held in memory."""
    folder = join(output_path, DROPPED)
    found: dict[str, str] = {}
    for name in sizes_below(folder):
        found |= _read(join(folder, name))
    return found


def _read(path: str) -> dict[str, str]:
    text = b"".join(chunks_of(path, path)).decode()
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # Ids may be of any length.
    rows = csv.reader(io.StringIO(text, newline=""))
    next(rows)
    return dict(rows)
