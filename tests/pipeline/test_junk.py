"""The corpus with planted faults: what is said of each record is true, and the stages find what was planted."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.decontaminate import DecontaminateConfig, decontaminate
from marin_rules.pipeline.dedupe import (
    FindDuplicatesConfig,
    FingerprintConfig,
    MarkDuplicatesConfig,
    find_duplicates,
    fingerprint,
    mark_duplicates,
)
from marin_rules.pipeline.extract import ExtractConfig, extract

REPOSITORY = Path(__file__).parents[2]
NOVEL = REPOSITORY / "tests" / "data" / "moby_dick"
ITEM = "Which of the harbours that lie north of the equator does the captain name first when he is asked about whales?"
HALF = dict.fromkeys(("navigation", "template", "shuffled", "exact_copy", "near_copy", "contaminated"), 0.5)


@pytest.fixture(scope="module")
def junk() -> Any:
    spec = importlib.util.spec_from_file_location("junk", REPOSITORY / "experiments" / "tutorials" / "junk.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["junk"] = module  # dataclasses look their module up.
    spec.loader.exec_module(module)
    return module


def passages() -> list[dict[str, Any]]:
    words = " ".join(path.read_text() for path in sorted(NOVEL.glob("*.txt"))).split()
    return [{"id": str(n), "text": " ".join(words[n * 200 : n * 200 + 200])} for n in range(len(words) // 200)]


def planted(corpus: Any, junk: Any, name: str, shards: int = 2, **settings: Any) -> list[dict[str, Any]]:
    good = passages()
    given = corpus.write(f"{name}-good", {f"{shard}.jsonl": good[shard::shards] for shard in range(shards)})
    quiz = corpus.write("quiz", {"a.jsonl": [{"id": "q", "text": ITEM}]})
    config = junk.JunkConfig(
        given, **{"shares": HALF, "evaluation_path": quiz, **settings}, output_path=corpus.path(name)
    )
    junk.plant_junk(config)
    records: list[dict[str, Any]] = corpus.records(name)
    return records


def by_id(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(records, key=lambda record: str(record["id"]))


def test_records_are_the_same_however_documents_are_divided(corpus: Any, junk: Any) -> None:
    one = planted(corpus, junk, "one", shards=1)
    assert by_id(one) == by_id(planted(corpus, junk, "four", shards=4))
    assert by_id(one) != by_id(planted(corpus, junk, "seed", shards=1, seed=1))
    truths = Counter(record["metadata"]["truth"] for record in one)
    assert corpus.summary("one")["tallies"] == truths
    assert truths.keys() == {"good", *HALF}
    assert truths["good"] + truths["contaminated"] == len(passages())
    assert all(record["text"].strip() for record in one)


def test_what_is_said_of_records_is_true(corpus: Any, junk: Any) -> None:
    originals = {record["id"]: record["text"] for record in passages()}
    for record in planted(corpus, junk, "out"):
        truth, text = record["metadata"]["truth"], record["text"]
        original = originals[record["metadata"].get("made_of", record["id"])]
        words, original_words = text.split(), original.split()
        assert (text == original) == (truth in ("good", "exact_copy"))
        assert (ITEM in text) == (truth == "contaminated")
        assert (sorted(words) == sorted(original_words)) == (truth in ("good", "exact_copy", "shuffled"))
        if truth == "near_copy":
            assert sum(a != b for a, b in zip(words, original_words, strict=True)) == 1


def test_the_stages_find_what_was_planted(corpus: Any, junk: Any) -> None:
    """Copies of the same document are near each other too: of each group all but one are to be marked."""
    records = planted(corpus, junk, "documents")
    documents, prints, found, marks = (corpus.path(name) for name in ("documents", "prints", "found", "marks"))
    fingerprint(FingerprintConfig(documents, output_path=prints))
    find_duplicates(FindDuplicatesConfig(prints, documents, output_path=found))
    mark_duplicates(MarkDuplicatesConfig(documents, found, output_path=marks))
    marked = {row["id"] for row in corpus.records("marks") if any(row["attributes"]["duplicate"].values())}
    groups: dict[str, set[str]] = {}
    for record in records:
        if record["metadata"]["truth"] in ("good", "exact_copy", "near_copy"):
            groups.setdefault(record["metadata"].get("made_of", record["id"]), set()).add(record["id"])
    assert all(len(group - marked) == 1 for group in groups.values())
    assert marked <= set().union(*groups.values())

    config = DecontaminateConfig(documents, {"quiz": corpus.path("quiz")}, ngram=8, output_path=corpus.path("quizzed"))
    decontaminate(config)
    scores = {row["id"]: row["attributes"]["contamination"]["quiz"] for row in corpus.records("quizzed")}
    contaminated = {record["id"] for record in records if record["metadata"]["truth"] == "contaminated"}
    assert {id for id, score in scores.items() if score > 0.5} == contaminated != set()


def test_pages_are_made_for_extract(corpus: Any, junk: Any) -> None:
    texts = {record["id"]: record["text"] for record in planted(corpus, junk, "texts")}
    planted(corpus, junk, "pages", as_pages=True)
    extract(ExtractConfig(corpus.path("pages"), main_content=False, output_path=corpus.path("documents")))
    extracted = {document["id"]: document["text"] for document in corpus.records("documents")}
    assert {id: text.split() for id, text in extracted.items()} == {id: text.split() for id, text in texts.items()}


def test_real_pages_stay_as_they_are_and_those_in_other_languages_are_left_alone(corpus: Any, junk: Any) -> None:
    files = {path.stem: path.read_text() for path in sorted((NOVEL.parent / "declarations").glob("*.html"))}
    files |= {path.stem: path.read_text() for path in sorted((NOVEL.parent / "sqlite_pages").glob("*.html"))}
    given = corpus.write("files", {"a.jsonl": [{"id": name, "html": page} for name, page in files.items()]})
    shares = dict.fromkeys(("navigation", "template", "shuffled", "exact_copy", "near_copy"), 1.0)
    junk.plant_junk(junk.JunkConfig(given, shares, as_pages=True, output_path=corpus.path("pages")))
    records = {record["id"]: record for record in corpus.records("pages")}
    truths = {id: record["metadata"]["truth"] for id, record in records.items()}
    assert {id for id, truth in truths.items() if truth == "other_language"} == {"deu_1996", "fra"}
    for name, page in files.items():
        assert records[name]["html"] == page
        if truths[name] == "good":
            assert records[f"{name}/exact_copy"]["html"] == page
    assert Counter(truths.values())["good"] == len(files) - 2 == Counter(truths.values())["navigation"]
    assert all("text" not in record for record in records.values())

    extract(ExtractConfig(corpus.path("pages"), output_path=corpus.path("documents")))
    texts = {document["id"]: document["text"].split() for document in corpus.records("documents")}
    for name in (name for name, truth in truths.items() if truth == "near_copy"):
        original = texts[name.removesuffix("/near_copy")]
        shared = len({*texts[name]} & {*original}) / len({*texts[name]} | {*original})
        assert 0.9 < shared < 1


def test_what_is_refused(corpus: Any, junk: Any) -> None:
    with pytest.raises(DataError, match=r"no kinds of records are called .*'spam'"):
        planted(corpus, junk, "out", shares={"spam": 0.5})
    with pytest.raises(DataError, match="give evaluation_path"):
        planted(corpus, junk, "out", evaluation_path=None)
    with pytest.raises(DataError, match="has no items"):
        planted(corpus, junk, "out", evaluation_path=corpus.path("nowhere"))
