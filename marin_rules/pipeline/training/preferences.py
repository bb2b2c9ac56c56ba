"""Preferences as Levanter reads them: two whole conversations each, the preferred one and the other."""

from __future__ import annotations

import json
from typing import Any

from marin_rules.pipeline.core.account import Account, add_up
from marin_rules.pipeline.core.files import into_place
from marin_rules.pipeline.core.records import preference_fault
from marin_rules.pipeline.core.shard_map import list_shards
from marin_rules.pipeline.training.errors import TrainingError


def write_pairs(folder: str, path: str) -> dict[str, Any]:
    """All preferences below a folder in one file, in the order of their shards; gives the counts. Bad records are
    counted, and left out."""
    counts = []
    with into_place(path) as file:
        for shard in list_shards(folder):
            account = Account(shard.name, lambda row: None)
            for row in shard.rows(account, preference_fault):
                record = row.record
                pair = {name: [*record["prompt"], *record[name]] for name in ("chosen", "rejected")}
                file.write(json.dumps(pair, ensure_ascii=False).encode() + b"\n")
                account.written += 1
            account.check_balance()
            counts.append(account.counts())
    total = add_up(counts)
    if not total["written"]:
        raise TrainingError(f"{folder} has no preferences: records need prompt, chosen and rejected messages")
    return total
