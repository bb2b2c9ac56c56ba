"""The size of a corpus: documents, characters, bytes and words, in total and by source.

With a tokenizer also tokens, at any stage of a corpus: what `tokenize` would make of it, except the tokens that mark
where a document begins and ends. With what a filter left out of the same documents, also how much that was, by reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.encoding import Encoder, batches
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.left_out import dropped_from
from marin_rules.pipeline.core.records import Record
from marin_rules.pipeline.core.shard_files import Row
from marin_rules.pipeline.core.shard_map import Shard, ShardSettings, map_shards
from marin_rules.pipeline.core.tokenizer_files import local_tokenizer


@dataclass(frozen=True)
class CountConfig:
    """What is below `input_path`; `summary.json` has the counts as `tallies`."""

    input_path: str | InputName
    tokenizer: str | InputName | None = None
    """A folder or URL with `tokenizer.json`, or `organisation/name@revision` of the Hugging Face hub."""

    filtered_path: str | InputName | None = None
    """The output of `consolidate` over the same documents."""

    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


def count(config: CountConfig) -> dict[str, Any]:
    """Write counts and no documents."""
    if config.tokenizer is None:
        return _count(config, None)
    with local_tokenizer(str(config.tokenizer)) as folder:
        return _count(config, Encoder(folder))


def left_out(tallies: dict[str, int], name: str) -> dict[str, int]:
    """Of counts with a filter: how much of `name` (documents, bytes, tokens, ...) it left out, by reason."""
    begin = f"{name} left out: "
    return {key.removeprefix(begin): number for key, number in tallies.items() if key.startswith(begin)}


def _count(config: CountConfig, encoder: Encoder | None) -> dict[str, Any]:
    def transform(shard: Shard, account: Account) -> Iterator[Record]:
        reasons = {} if config.filtered_path is None else dropped_from(str(config.filtered_path), shard.name)
        for row, tokens in _with_tokens(shard.rows(account), encoder):
            reason = reasons.pop(row.record["id"], None)
            _tally(account, row.record, tokens, reason)
            yield row.record
        if reasons:
            raise DataError(
                f"{config.filtered_path} has left out documents that {shard.path} does not have, such as"
                f" {next(iter(reasons))!r}: give the output of `consolidate` over these documents"
            )

    return map_shards(transform, str(config.input_path), config.output_path, output_format="", settings=config.shards)


def _tally(account: Account, record: Record, tokens: int | None, reason: str | None) -> None:
    text, source = record["text"], record.get("source", "")
    sizes = {
        "documents": 1,
        "characters": len(text),
        "bytes": len(text.encode()),
        "words": len(text.split()),
        "empty": int(not text.strip()),
    }
    sizes |= {} if tokens is None else {"tokens": tokens}
    for name, size in sizes.items():
        account.tallies[name] += size
        if source:
            account.tallies[f"{name} from {source}"] += size
        if reason:
            account.tallies[f"{name} left out: {reason}"] += size


def _with_tokens(rows: Iterator[Row], encoder: Encoder | None) -> Iterator[tuple[Row, int | None]]:
    if encoder is None:
        yield from ((row, None) for row in rows)
        return
    for batch in batches((row, row.record["text"]) for row in rows):
        encoded = encoder.encode([text for _, text in batch])
        yield from ((row, len(tokens)) for (row, _), tokens in zip(batch, encoded, strict=True))
