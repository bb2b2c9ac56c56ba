"""How much of the evaluation sets occurs in the documents of a corpus, as attributes.

An item of an evaluation set is found in a document by the n-grams of words that they share (lower case, without
punctuation). The attribute `contamination` has a score for each set: the largest share of one item's n-grams that the
document contains, from 0 to 1. `consolidate` drops what is above a threshold.

Items with fewer words than an n-gram cannot be looked for; the summary says how many of each set there are (`tallies`
of `evaluation.json`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import join, write_json
from marin_rules.pipeline.core.fingerprints import Shingler, ShingleSettings
from marin_rules.pipeline.core.records import Record
from marin_rules.pipeline.core.shard_map import Shard, ShardSettings, list_shards, map_shards

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class DecontaminateConfig:
    """Attributes of the documents below `input_path`."""

    input_path: str | InputName
    evaluation_sets: Mapping[str, str | InputName]
    """Name -> folder with shards of documents, one for each item. They are held in memory."""

    ngram: int = 13
    """Words. Shorter ones find more, including chance matches."""

    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


def decontaminate(config: DecontaminateConfig) -> dict[str, Any]:
    """Write a shard of attributes for each shard of documents, and `evaluation.json` about the sets."""
    index = _Index(config)
    write_json(join(config.output_path, "evaluation.json"), index.report)

    def transform(shard: Shard, account: Account) -> Iterator[Record]:
        for row in shard.rows(account):
            scores = index.scores(row.record["text"])
            account.tallies.update({f"documents with words of {name}": 1 for name, score in scores.items() if score})
            attributes = {"contamination": scores}
            yield {"id": row.record["id"], "source": row.record.get("source", ""), "attributes": attributes}

    return map_shards(transform, str(config.input_path), config.output_path, settings=config.shards)


class _Index:
    """The n-grams of all items, and which items have them."""

    def __init__(self, config: DecontaminateConfig) -> None:
        self._size = config.ngram
        self._shingler = Shingler(ShingleSettings(size=config.ngram))
        self._owners: dict[int, list[int]] = {}
        self._sizes: list[int] = []
        """Of items: their different n-grams."""

        self._sets: list[str] = []
        """Of items: the name of their set."""

        self._names = sorted(config.evaluation_sets)
        self.report = {name: self._take_set(name, str(config.evaluation_sets[name])) for name in self._names}

    def scores(self, text: str) -> dict[str, float]:
        shared = Counter(owner for gram in self._grams(text) & self._owners.keys() for owner in self._owners[gram])
        scores = dict.fromkeys(self._names, 0.0)
        for item, count in shared.items():
            name = self._sets[item]
            scores[name] = max(scores[name], round(count / self._sizes[item], 4))
        return scores

    def _take_set(self, name: str, folder: str) -> dict[str, int]:
        account = Account(name, lambda row: None)
        shards = list_shards(folder)
        too_short = 0
        for shard in shards:
            for row in shard.rows(account):
                grams = self._grams(row.record["text"])
                too_short += not grams
                for gram in grams:
                    self._owners.setdefault(gram, []).append(len(self._sizes))
                self._sizes.append(len(grams))
                self._sets.append(name)
        if not account.read:
            raise DataError(f"the evaluation set {name} has no items: nothing is below {folder}")
        if account.rejected:
            raise DataError(
                f"the evaluation set {name} has bad items, which would not be looked for: {dict(account.rejected)}."
                f" Fix the files below {folder}, or convert them first"
            )
        return {"items": account.read, "too_short": too_short}

    def _grams(self, text: str) -> set[int]:
        words = _WORD.findall(text)
        return set(self._shingler.shingles(" ".join(words))) if len(words) >= self._size else set()
