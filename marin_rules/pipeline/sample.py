"""A part of a corpus, chosen by the hashes of ids: the same documents however they are divided into shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.fingerprints import digest
from marin_rules.pipeline.core.records import Record
from marin_rules.pipeline.core.shard_map import Shard, ShardSettings, map_shards


@dataclass(frozen=True)
class SampleConfig:
    """About `fraction` of the documents below `input_path`. What a smaller fraction chooses, a larger one does too: a
    sample of a sample needs another seed."""

    input_path: str | InputName
    fraction: float
    seed: int = 0
    output_format: str = ".jsonl.zst"
    rest: bool = False
    """Write what the sample leaves out instead. Every document is in one of the two: one is held out from the other."""

    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


def sample(config: SampleConfig) -> dict[str, Any]:
    """Write a shard for each shard, of the same name."""
    if not 0 <= config.fraction <= 1:
        raise DataError(f"a fraction of {config.fraction} cannot be sampled: give one from 0 to 1")
    limit = int(config.fraction * 2**64)

    def transform(shard: Shard, account: Account) -> Iterator[Record | bytes]:
        for row in shard.rows(account):
            is_chosen = int.from_bytes(digest(f"{config.seed} {row.record['id']}")[:8], "big") < limit
            if is_chosen is not config.rest:
                yield row.line or row.record
            else:
                account.drop("in the sample" if is_chosen else "not in the sample")

    return map_shards(
        transform,
        str(config.input_path),
        config.output_path,
        output_format=config.output_format,
        settings=config.shards,
    )
