"""What `benchmarks/data_stages.py` measures: `data_stages.py STAGE make|ours|bare SIZE`, in a folder of its own.

`make` writes the input, `ours` runs the project's stage over it, `bare` does the same with the library alone: it reads
the same shards, writes what it extracts, and keeps no counts, rejects or restart points. For `rewrite`, two stages are
`ours`: consolidate and shuffle.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import zstandard

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
SHARDS = 8
SHINGLE, PERMUTATIONS, BANDS = 5, 128, 16
THRESHOLD, DEFAULT_THRESHOLD = 0.6, 0.8
"""To datatrove, documents that share a band are duplicates. Those that do are hardly ever less similar than 0.6."""


def write_shards(folder: str, records: Iterator[dict[str, Any]]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    Path(folder).mkdir()
    files = [zstandard.open(f"{folder}/{number}.jsonl.zst", "wb") for number in range(SHARDS)]
    for number, record in enumerate(records):
        files[number % SHARDS].write(orjson.dumps(record) + b"\n")
    for file in files:
        file.close()


def read_shards(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(Path(folder).glob("*.jsonl.zst")):
        with zstandard.open(path, "rb") as file:
            for line in io.BufferedReader(file, 1 << 18):
                yield path.name, orjson.loads(line)


def answer(name: str, **values: int) -> None:
    Path(f"{name}.json").write_text(json.dumps(values))


# --- extract


def make_extract(size: int) -> None:
    pages = [path.read_text() for path in sorted((DATA / "sqlite_pages").glob("*.html"))]
    write_shards("pages", ({"id": str(number), "html": pages[number % len(pages)]} for number in range(size)))


def ours_extract(size: int) -> None:
    from marin_rules.pipeline.extract import ExtractConfig, extract

    shutil.rmtree("ours", ignore_errors=True)
    answer("extract-ours", documents=extract(ExtractConfig("pages", output_path="ours"))["written"])


def bare_extract(size: int) -> None:
    from resiliparse.extract.html2text import extract_plain_text

    def documents() -> Iterator[dict[str, Any]]:
        for _, page in read_shards("pages"):
            yield {"id": page["id"], "text": extract_plain_text(page["html"], main_content=True, links=False)}

    write_shards("bare", documents())
    answer("extract-bare", documents=sum(1 for _ in read_shards("bare")))


# --- dedupe


def make_dedupe(size: int) -> None:
    """Nine tenths are texts of random words of a novel, 100 to 200 each; one tenth copies with one to three others."""
    words = " ".join(path.read_text() for path in sorted((DATA / "moby_dick").glob("*.txt"))).split()
    chance = random.Random(1)

    def documents() -> Iterator[dict[str, Any]]:
        originals = size * 9 // 10
        texts = [chance.choices(words, k=chance.randint(100, 200)) for _ in range(originals)]
        for number, text in enumerate(texts):
            yield {"id": f"{number}", "text": " ".join(text)}
        for number in range(size - originals):
            copy = list(texts[number])
            for place in chance.sample(range(len(copy)), chance.randint(1, 3)):
                copy[place] = f"other{place}"
            yield {"id": f"{number}-copy", "text": " ".join(copy)}

    write_shards("documents", documents())


def ours_dedupe(size: int) -> None:
    from marin_rules.pipeline import dedupe

    for folder in ("prints", "found", "marks"):
        shutil.rmtree(folder, ignore_errors=True)
    dedupe.fingerprint(dedupe.FingerprintConfig("documents", output_path="prints"))
    dedupe.find_duplicates(dedupe.FindDuplicatesConfig("prints", "documents", THRESHOLD, BANDS, output_path="found"))
    dedupe.mark_duplicates(dedupe.MarkDuplicatesConfig("documents", "found", output_path="marks"))
    judge("dedupe-ours", size, marked_below("marks"))


def default_dedupe(size: int) -> None:
    """At the threshold that it has if none is given, from the fingerprints that `ours` has made."""
    from marin_rules.pipeline import dedupe

    for folder in ("found", "marks"):
        shutil.rmtree(folder, ignore_errors=True)
    config = dedupe.FindDuplicatesConfig("prints", "documents", DEFAULT_THRESHOLD, BANDS, output_path="found")
    dedupe.find_duplicates(config)
    dedupe.mark_duplicates(dedupe.MarkDuplicatesConfig("documents", "found", output_path="marks"))
    judge("dedupe-default", size, marked_below("marks"), least=DEFAULT_THRESHOLD)


def marked_below(folder: str) -> set[str]:
    return {row["id"] for _, row in read_shards(folder) if any(row["attributes"]["duplicate"].values())}


def bare_dedupe(size: int) -> None:
    from rensa import RMinHash, RMinHashLSH

    index = RMinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS, num_bands=BANDS)
    signatures: list[Any] = []
    marked = set()
    for number, (_, document) in enumerate(read_shards("documents")):
        signature = RMinHash(num_perm=PERMUTATIONS, seed=1)
        signature.update(shingles(document["text"]))
        if any(signature.jaccard(signatures[other]) >= THRESHOLD for other in index.query(signature)):
            marked.add(document["id"])
        index.insert(number, signature)
        signatures.append(signature)
    judge("dedupe-bare", size, marked)


def judge(name: str, size: int, marked: set[str], least: float = 0.0) -> None:
    """Of each pair one has to be marked; `least` leaves out pairs that are less similar."""
    pairs = [{str(number), f"{number}-copy"} for number in range(size - size * 9 // 10)]
    planted = set().union(*pairs)
    if least:
        texts = {row["id"]: shingles(row["text"]) for _, row in read_shards("documents") if row["id"] in planted}
        pairs = [pair for pair in pairs if similarity(*(texts[id] for id in pair)) >= least]
    found = sum(len(pair & marked) == 1 for pair in pairs)
    answer(name, planted=len(pairs), found=found, marked=len(marked), wrong=len(marked - planted))


def shingles(text: str) -> set[str]:
    words = text.lower().split()
    return {" ".join(words[i : i + SHINGLE]) for i in range(len(words) - SHINGLE + 1)}


def similarity(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other)


def judge_datatrove(size: int) -> None:
    judge("dedupe-datatrove", size, set(json.loads(Path("datatrove-marked.json").read_text())))


# --- consolidate and shuffle


def ours_consolidate(size: int) -> None:
    from marin_rules.pipeline.consolidate import Condition, ConsolidateConfig, consolidate

    shutil.rmtree("consolidated", ignore_errors=True)
    counts = consolidate(ConsolidateConfig("documents", [Condition("len(text) > 9")], output_path="consolidated"))
    answer("rewrite-consolidate", documents=counts["written"], bytes=counts["bytes_read"])


def ours_shuffle(size: int) -> None:
    from marin_rules.pipeline.shuffle import GatherConfig, ScatterConfig, gather, scatter

    for folder in ("scattered", "shuffled"):
        shutil.rmtree(folder, ignore_errors=True)
    counts = scatter(ScatterConfig("documents", SHARDS, output_path="scattered"))
    documents = gather(GatherConfig("scattered", SHARDS, output_path="shuffled"))["written"]
    answer("rewrite-shuffle", documents=documents, bytes=counts["bytes_read"])


def bare_rewrite(size: int) -> None:
    """What `zstd -d | zstd` does, a shard after the other."""
    shutil.rmtree("rewritten", ignore_errors=True)
    Path("rewritten").mkdir()
    documents = total = 0
    for path in sorted(Path("documents").glob("*.jsonl.zst")):
        with zstandard.open(path, "rb") as source, zstandard.open(f"rewritten/{path.name}", "wb") as target:
            while chunk := source.read(1 << 18):
                target.write(chunk)
                documents += chunk.count(b"\n")
                total += len(chunk)
    answer("rewrite-bare", documents=documents, bytes=total)


STAGES: dict[tuple[str, str], Callable[[int], None]] = {
    ("extract", "make"): make_extract,
    ("extract", "ours"): ours_extract,
    ("extract", "bare"): bare_extract,
    ("dedupe", "make"): make_dedupe,
    ("dedupe", "ours"): ours_dedupe,
    ("dedupe", "bare"): bare_dedupe,
    ("dedupe", "default"): default_dedupe,
    ("dedupe", "judge_datatrove"): judge_datatrove,
    ("rewrite", "make"): make_dedupe,
    ("rewrite", "consolidate"): ours_consolidate,
    ("rewrite", "shuffle"): ours_shuffle,
    ("rewrite", "bare"): bare_rewrite,
}

if __name__ == "__main__":
    STAGES[sys.argv[1], sys.argv[2]](int(sys.argv[3]))
