"""What `benchmarks/data_memory.py` measures: `data_memory.py STAGE DOCUMENTS SHARDS`, in a folder of its own.

Each stage reads what `make` or the stages before it have written there, with the given number of shards.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"


def make(documents: int, shards: int) -> None:
    """Texts of 100 to 200 random words of a novel, and the pages of a manual, a tenth as many."""
    words = " ".join(path.read_text() for path in sorted((DATA / "moby_dick").glob("*.txt"))).split()
    pages = [path.read_text() for path in sorted((DATA / "sqlite_pages").glob("*.html"))]
    chance = random.Random(1)
    for folder in ("documents", "pages", "questions"):
        Path(folder).mkdir()
    for shard in range(shards):
        with Path(f"documents/{shard}.jsonl").open("w") as file:
            for number in range(documents // shards):
                text = " ".join(chance.choices(words, k=chance.randint(100, 200)))
                file.write(json.dumps({"id": f"{shard}-{number}", "text": text}) + "\n")
        with Path(f"pages/{shard}.jsonl").open("w") as file:
            for number in range(documents // shards // 10):
                file.write(json.dumps({"id": f"{shard}-{number}", "html": pages[number % len(pages)]}) + "\n")
    question = {"id": "q", "text": " ".join(chance.choices(words, k=50))}
    Path("questions/a.jsonl").write_text(json.dumps(question) + "\n")


def extract(documents: int, shards: int) -> None:
    from marin_rules.pipeline.extract import ExtractConfig, extract

    extract(ExtractConfig("pages", output_path="extracted"))


def identify_language(documents: int, shards: int) -> None:
    from marin_rules.pipeline.identify_language import IdentifyLanguageConfig, identify_language

    identify_language(IdentifyLanguageConfig("documents", output_path="languages"))


def fingerprint(documents: int, shards: int) -> None:
    from marin_rules.pipeline.dedupe import FingerprintConfig, fingerprint

    fingerprint(FingerprintConfig("documents", output_path="prints"))


def find_duplicates(documents: int, shards: int) -> None:
    from marin_rules.pipeline.dedupe import FindDuplicatesConfig, find_duplicates

    find_duplicates(FindDuplicatesConfig("prints", "documents", output_path="found"))


def mark_duplicates(documents: int, shards: int) -> None:
    from marin_rules.pipeline.dedupe import MarkDuplicatesConfig, mark_duplicates

    mark_duplicates(MarkDuplicatesConfig("documents", "found", output_path="marks"))


def decontaminate(documents: int, shards: int) -> None:
    from marin_rules.pipeline.decontaminate import DecontaminateConfig, decontaminate

    decontaminate(DecontaminateConfig("documents", {"quiz": "questions"}, output_path="overlap"))


def consolidate(documents: int, shards: int) -> None:
    from marin_rules.pipeline.consolidate import ConsolidateConfig, Threshold, consolidate

    filters = [
        Threshold("marks", "duplicate", "near", upper=0.5),
        Threshold("overlap", "contamination", "quiz", upper=0.5),
    ]
    consolidate(ConsolidateConfig("documents", filters, output_path="corpus"))


def scatter(documents: int, shards: int) -> None:
    from marin_rules.pipeline.shuffle import ScatterConfig, scatter

    scatter(ScatterConfig("corpus", shards, output_path="scattered"))


def gather(documents: int, shards: int) -> None:
    from marin_rules.pipeline.shuffle import GatherConfig, gather

    gather(GatherConfig("scattered", shards, output_path="shuffled"))


def count(documents: int, shards: int) -> None:
    from marin_rules.pipeline.count import CountConfig, count

    count(CountConfig("documents", filtered_path="corpus", output_path="counted"))


STAGES: dict[str, Callable[[int, int], None]] = {
    one.__name__: one
    for one in (
        *(make, extract, identify_language, fingerprint, find_duplicates, mark_duplicates, decontaminate),
        *(consolidate, scatter, gather, count),
    )
}

if __name__ == "__main__":
    STAGES[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
