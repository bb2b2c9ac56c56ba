"""What `benchmarks/tokenizing.py` measures: `tokenize_documents.py make|ours|bare MEGABYTES`, in a folder of its own.

`make` writes the documents and trains the tokenizer, `ours` runs the project's stage over them in two processes, `bare`
encodes the same documents with `encode_batch` of the tokenizers library in two threads, and writes nothing. Both say
how long that took once everything was imported.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import zstandard

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
SHARDS, CORES = 8, 2


def make(megabytes: int) -> None:
    """Sentences of a novel in random order: as many different words as it has, and no two documents alike."""
    from marin_rules.pipeline.train_tokenizer import TrainTokenizerConfig, train_tokenizer

    text = " ".join(path.read_text() for path in sorted((ROOT / "tests" / "data" / "moby_dick").glob("*.txt")))
    sentences = [f"{sentence}." for sentence in text.split(".") if sentence.strip()]
    chance = random.Random(1)
    shutil.rmtree("documents", ignore_errors=True)
    Path("documents").mkdir()
    for shard in range(SHARDS):
        written = number = 0
        with zstandard.open(f"documents/{shard}.jsonl.zst", "wb") as file:
            while written < megabytes * 1e6 / SHARDS:
                document = "".join(chance.choices(sentences, k=chance.randint(5, 40)))
                file.write(orjson.dumps({"id": f"{shard}-{number}", "text": document}) + b"\n")
                written += len(document.encode())
                number += 1
    train_tokenizer(TrainTokenizerConfig("documents", 4096, sample_documents=500, output_path="tokenizer"))


def ours(megabytes: int) -> None:
    from marin_rules.pipeline.core.shard_map import ShardSettings
    from marin_rules.pipeline.tokenize import TokenizeConfig, tokenize

    shutil.rmtree("ours", ignore_errors=True)
    import levanter.store.cache  # noqa: F401

    shards = ShardSettings(processes=CORES)
    clock = Clock()
    done = tokenize(TokenizeConfig("tokenizer", ["documents"], shards=shards, output_path="ours"))
    # Each document has a begin and an end token, and a space before the end.
    answer("ours", clock, done["tallies"]["documents"], done["tallies"]["tokens"] - 2 * done["written"])


def bare(megabytes: int) -> None:
    os.environ.update(TOKENIZERS_PARALLELISM="true", RAYON_NUM_THREADS=str(CORES))
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file("tokenizer/tokenizer.json")
    documents = tokens = 0
    batch: list[str] = []
    clock = Clock()
    for document in read_documents():
        batch.append(document["text"] + " ")
        if len(batch) == 1000:
            documents, tokens = documents + len(batch), tokens + encoded(tokenizer, batch)
            batch.clear()
    answer("bare", clock, documents + len(batch), tokens + encoded(tokenizer, batch))


def encoded(tokenizer: Any, batch: list[str]) -> int:
    return sum(len(encoding.ids) for encoding in tokenizer.encode_batch(batch, add_special_tokens=False))


def read_documents() -> Iterator[dict[str, Any]]:
    for path in sorted(Path("documents").glob("*.jsonl.zst")):
        with zstandard.open(path, "rb") as file:
            for line in io.BufferedReader(file, 1 << 18):
                yield orjson.loads(line)


class Clock:
    """Seconds since it was made: by the wall, and of CPU, with those of processes that have ended."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), sum(os.times()[:4])

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, sum(os.times()[:4]) - self._cpu


def answer(side: str, clock: Clock, documents: int, tokens: int) -> None:
    wall, cpu = clock.read()
    told = {"documents": documents, "tokens": tokens, "wall": wall, "cpu": cpu}
    Path(f"tokenize-{side}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    {"make": make, "ours": ours, "bare": bare}[sys.argv[1]](int(sys.argv[2]))
