"""A byte-level BPE tokenizer, trained on documents: a Hugging Face tokenizer folder, and how well it compresses.

    <output>/tokenizer.json, tokenizer_config.json   loadable by transformers, tokenizers and Levanter, without network
    <output>/training.json                           what it was trained on, and its compression of held-out documents
    <output>/report/tokenizer.csv                    the same as a table, by source

A hash of the seed and each document's id decides which documents are held out and which are sampled, and counts of
words do not depend on their order: the same documents are the same bytes, however they are divided into shards.
"""

from __future__ import annotations

import csv
import heapq
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.encoding import Encoder, pieces
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, join, write_json
from marin_rules.pipeline.core.fingerprints import digest
from marin_rules.pipeline.core.records import Record
from marin_rules.pipeline.core.shard_map import Shard, ShardSettings, list_shards, no_shards
from marin_rules.pipeline.core.tokenizer_files import TokenizerFolder, local_tokenizer

BYTES = 256
"""Tokens that every vocabulary has, so that any text can be encoded."""


@dataclass(frozen=True)
class TrainTokenizerConfig:
    """A tokenizer for the documents below `input_path`."""

    input_path: str | InputName
    vocabulary: int
    """Tokens in all: 256 bytes, the special tokens, and merges. Little text may give fewer."""

    begin_token: str | None = "<|begin_of_text|>"
    end_token: str | None = "<|end_of_text|>"
    padding_token: str | None = "<|padding|>"
    special_tokens: Sequence[str] = ()
    """Further ones, such as those of a chat template."""

    chat_template: str | None = None
    """Jinja; `{% generation %}` blocks around what an assistant says make it fit for fine-tuning."""

    min_frequency: int = 2
    """How often a pair must occur to be merged."""

    sample_documents: int | None = None
    """Train on this many documents, chosen at random, which are held in memory. None: on all."""

    held_out_documents: int = 200
    """Documents that it is evaluated on and not trained on; at most a tenth of all."""

    seed: int = 0
    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


def train_tokenizer(config: TrainTokenizerConfig) -> dict[str, Any]:
    """Write the tokenizer; returns what `training.json` says."""
    special = special_tokens_of(config)
    corpus = _Corpus(config)
    tokenizer = _trained(corpus.training_texts(), config, special)
    with into_place(join(config.output_path, "tokenizer.json")) as file:
        file.write(tokenizer.to_str(pretty=True).encode() + b"\n")
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    named = {"bos_token": config.begin_token, "eos_token": config.end_token, "pad_token": config.padding_token}
    settings |= {name: token for name, token in named.items() if token is not None}
    settings |= {"additional_special_tokens": list(config.special_tokens)} if config.special_tokens else {}
    settings |= {"chat_template": config.chat_template} if config.chat_template is not None else {}
    write_json(join(config.output_path, "tokenizer_config.json"), settings)
    with local_tokenizer(config.output_path) as folder:
        return _judge(config, corpus, folder)


def special_tokens_of(config: TrainTokenizerConfig) -> list[str]:
    """Each once. A vocabulary without room for them is refused, by the helper even while planning."""
    named = (config.begin_token, config.end_token, config.padding_token)
    special = list(dict.fromkeys([token for token in (*named, *config.special_tokens) if token is not None]))
    if "" in special:
        raise DataError("a special token is empty: use None for a token that the tokenizer is not to have")
    if config.vocabulary < BYTES + len(special):
        raise DataError(
            f"a vocabulary of {config.vocabulary} is too small: {BYTES} bytes and {len(special)} special tokens need"
            f" {BYTES + len(special)}"
        )
    return special


def _trained(texts: Iterator[str], config: TrainTokenizerConfig, special: list[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocabulary,
        min_frequency=config.min_frequency,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


class _Corpus:
    """The documents in the order of their hashes: the first are held out, the next are the sample."""

    def __init__(self, config: TrainTokenizerConfig) -> None:
        self._config = config
        self._shards = list_shards(str(config.input_path), settings=config.shards)
        if not self._shards:
            raise no_shards(str(config.input_path))
        self.rejected_by_shard: dict[str, Counter[str]] = {}
        self.documents = 0
        first = self._first((config.sample_documents or 0) + max(config.held_out_documents, 0))
        if self.documents < 2:
            raise DataError(
                f"{config.input_path} has {self.documents} documents with text"
                f" (rejected: {self.rejected}): a tokenizer needs at least two"
            )
        count = min(max(config.held_out_documents, 0), max(self.documents // 10, 1))
        self.held_out = [record for _, record in first[:count]]
        self._held_out_keys = {key for key, _ in first[:count]}
        sample = config.sample_documents
        self._sample = None if sample is None else [record for _, record in first[count : count + sample]]
        self.trained_on = self.documents - len(self._held_out_keys) if self._sample is None else len(self._sample)

    @property
    def rejected(self) -> dict[str, int]:
        return dict(sorted(sum(self.rejected_by_shard.values(), Counter()).items()))

    def training_texts(self) -> Iterator[str]:
        if self._sample is not None:
            texts = (record["text"] for record in self._sample)
        else:
            texts = (record["text"] for key, record in self._all() if key not in self._held_out_keys)
        for text in texts:
            yield from pieces(text)

    def _first(self, count: int) -> list[tuple[tuple[bytes, bytes], Record]]:
        """The documents with the lowest hashes, kept in a heap whose top is the highest of them."""
        kept: list[tuple[bytes, bytes, int, Record]] = []
        for number, (key, record) in enumerate(self._all()):
            self.documents += 1
            item = (_complement(key[0]), _complement(key[1]), number, record)
            if len(kept) < count:
                heapq.heappush(kept, item)
            elif kept and item > kept[0]:
                heapq.heapreplace(kept, item)
        return [
            ((_complement(one), _complement(other)), record) for one, other, _, record in sorted(kept, reverse=True)
        ]

    def _all(self) -> Iterator[tuple[tuple[bytes, bytes], Record]]:
        for shard in self._shards:
            yield from self._of(shard)

    def _of(self, shard: Shard) -> Iterator[tuple[tuple[bytes, bytes], Record]]:
        account = Account(shard.name, lambda row: None)
        for row in shard.rows(account):
            record = row.record
            if record["text"] and not record["text"].isspace():
                key = digest(f"{self._config.seed} {record['id']}"), digest(record["text"])
                yield key, {"text": record["text"], "source": record.get("source") or ""}
        self.rejected_by_shard[shard.name] = account.rejected


def _complement(key: bytes) -> bytes:
    """In the opposite order."""
    return bytes(255 - byte for byte in key)


def _judge(config: TrainTokenizerConfig, corpus: _Corpus, folder: TokenizerFolder) -> dict[str, Any]:
    encoder = Encoder(folder)
    sizes: dict[str, Counter[str]] = {}
    for record in corpus.held_out:
        size = sizes.setdefault(record["source"], Counter())
        text = record["text"]
        size.update(documents=1, bytes=len(text.encode()), tokens=len(encoder.encode([text])[0]))
    total: Counter[str] = sum(sizes.values(), Counter())
    compression = round(total["bytes"] / total["tokens"], 4) if total["tokens"] else None
    result = {
        "sha256": folder.sha256,
        "vocabulary": folder.vocabulary,
        "documents": corpus.documents,
        "trained_on": corpus.trained_on,
        "rejected": corpus.rejected,
        "held_out": {**total, "bytes_per_token": compression},
    }
    write_json(join(config.output_path, "training.json"), result)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("source", "held_out_documents", "bytes", "tokens", "bytes_per_token"))
    for source, size in [*sorted(sizes.items()), *([("all", total)] if total else [])]:
        ratio = f"{size['bytes'] / max(size['tokens'], 1):.3f}"
        table.writerow((source, size["documents"], size["bytes"], size["tokens"], ratio))
    with into_place(join(config.output_path, "report", "tokenizer.csv")) as file:
        file.write(text.getvalue().encode())
    return result
