"""Duplicates: planted ones are found, others are left alone, and no division of the corpus changes anything."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.consolidate import ConsolidateConfig, consolidate
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.fingerprints import Shingler, ShingleSettings, paragraphs_of
from marin_rules.pipeline.dedupe import (
    FindDuplicatesConfig,
    FingerprintConfig,
    MarkDuplicatesConfig,
    find_duplicates,
    fingerprint,
    mark_duplicates,
)

CHAPTERS = Path(__file__).parents[1] / "data" / "moby_dick"
SHORTEST = 40


def passages() -> list[str]:
    """Real paragraphs of at least 40 words."""
    text = "\n".join(path.read_text() for path in sorted(CHAPTERS.glob("*.txt")))
    return [line for line in text.splitlines() if len(line.split()) >= 40]


def edited(text: str, part: float, chance: random.Random) -> str:
    """A copy in which so many of the words are others."""
    words = text.split()
    for place in chance.sample(range(len(words)), max(1, round(part * len(words)))):
        words[place] = f"x{place}"
    return " ".join(words)


def jaccard(one: str, other: str, size: int = 5) -> float:
    """By definition."""
    sets = []
    for text in (one, other):
        words = text.lower().split()
        sets.append({tuple(words[i : i + size]) for i in range(len(words) - size + 1)})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def dedupe(corpus: Any, shards: dict[str, list[Any]], name: str = "", **options: Any) -> dict[str, Any]:
    """All three steps; the attributes by id."""
    given = corpus.write(f"{name}documents", shards)
    shingles, shortest = options.pop("shingles", ShingleSettings()), options.pop("shortest_paragraph", SHORTEST)
    steps = [corpus.path(f"{name}{step}") for step in ("fingerprints", "duplicates", "attributes")]
    fingerprint(FingerprintConfig(given, shingles, shortest, output_path=steps[0]))
    find_duplicates(FindDuplicatesConfig(steps[0], given, output_path=steps[1], **options))
    mark_duplicates(MarkDuplicatesConfig(given, steps[1], shortest, output_path=steps[2]))
    assert sorted(corpus.read(f"{name}attributes")) == sorted(corpus.read(f"{name}documents")), "the same names"
    return {record["id"]: record["attributes"] for record in corpus.records(f"{name}attributes")}


def labels(attributes: dict[str, Any]) -> dict[str, str]:
    """The duplicates, with what they are."""
    marks = {id: [label for label, score in of_one["duplicate"].items() if score] for id, of_one in attributes.items()}
    assert all(len(found) <= 1 for found in marks.values())
    return {id: found[0] for id, found in marks.items() if found}


def planted() -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Documents; and groups of them, by name, of which exactly one may stay."""
    chance = random.Random(7)
    texts = passages()
    documents = [{"id": f"original-{number}", "text": text} for number, text in enumerate(texts)]
    groups = {}
    for number in range(0, len(texts), 4):
        documents.append({"id": f"copy-{number}", "text": f"  {texts[number]}\n"})
        groups[f"text {number}"] = [f"original-{number}", f"copy-{number}"]
    for number in range(1, len(texts) - 3, 4):
        long = " ".join(texts[number : number + 3])
        documents.append({"id": f"long-{number}", "text": long})
        documents.append({"id": f"edited-{number}", "text": edited(long, 0.005, chance)})
        groups[f"near {number}"] = [f"long-{number}", f"edited-{number}"]
    chance.shuffle(documents)
    return documents, groups


def test_planted_duplicates_are_found_and_nothing_else(corpus: Any) -> None:
    documents, groups = planted()
    texts = {document["id"]: document["text"] for document in documents}
    marked = labels(dedupe(corpus, {"a.jsonl": documents}))
    near = {name: group for name, group in groups.items() if jaccard(*(texts[id] for id in group)) >= 0.85}
    assert sum(name.startswith("near") for name in near) >= 4
    for name, group in near.items():
        found = [marked[id] for id in group if id in marked]
        assert found == [name.split()[0]], f"one of {group} is marked, and for what it is"
    grouped = {id for group in groups.values() for id in group}
    assert set(marked) <= grouped, "nothing else is marked"


@pytest.mark.parametrize("shards", [2, 5])
def test_how_the_corpus_is_divided_changes_nothing(shards: int, corpus: Any) -> None:
    documents, _ = planted()
    whole = dedupe(corpus, {"a.jsonl": documents}, "whole-")
    other = random.Random(shards).sample(documents, len(documents))
    divided = {f"{number}.jsonl": other[number::shards] for number in range(shards)}
    parts = dedupe(corpus, divided, "parts-")
    assert parts == whole


def test_tasks_change_no_byte(corpus: Any, as_task: Any) -> None:
    documents, _ = planted()
    shards = {f"{number}.jsonl": documents[number::3] for number in range(3)}
    dedupe(corpus, shards)
    for task in (1, 0):
        as_task(task, 2)
        given = corpus.path("documents")
        fingerprint(FingerprintConfig(given, ShingleSettings(), SHORTEST, output_path=corpus.path("f")))
    for task in (1, 0):
        as_task(task, 2)
        config = MarkDuplicatesConfig(given, corpus.path("duplicates"), SHORTEST, output_path=corpus.path("a"))
        mark_duplicates(config)
    assert corpus.bytes_of("f") == corpus.bytes_of("fingerprints")
    assert corpus.bytes_of("a") == corpus.bytes_of("attributes")


def test_the_threshold_is_honoured(corpus: Any) -> None:
    """A pair with a similarity of about 0.6 is one at a threshold of 0.4 and none at 0.8."""
    text = " ".join(passages()[:6])
    other = edited(text, 0.05, random.Random(3))
    assert 0.5 < jaccard(text, other) < 0.7
    shards = {"a.jsonl": [{"id": "a", "text": text}, {"id": "b", "text": other}]}
    assert list(labels(dedupe(corpus, shards, "low-", threshold=0.4, bands=32)).values()) == ["near"]
    assert labels(dedupe(corpus, shards, "high-", threshold=0.8, bands=32)) == {}
    assert labels(dedupe(corpus, shards, "off-", shingles=None)) == {}


def test_characters_find_near_duplicates_without_spaces(corpus: Any) -> None:
    chance = random.Random(5)
    texts = ["".join(chr(0x4E00 + chance.randrange(3000)) for _ in range(400)) for _ in range(3)]
    documents = [{"id": str(number), "text": text} for number, text in enumerate([*texts, texts[0][:-3]])]
    shingles = ShingleSettings(unit="character")
    assert list(labels(dedupe(corpus, {"a.jsonl": documents}, "a-", shingles=shingles)).values()) == ["near"]
    assert labels(dedupe(corpus, {"a.jsonl": documents}, "b-")) == {}


def test_an_id_in_two_shards(corpus: Any) -> None:
    """One stays, the same whichever shard it is in; and it is not lost as the duplicate of one that goes."""
    texts = passages()
    one, other, third = {"id": "x", "text": texts[0]}, {"id": "x", "text": texts[1]}, {"id": "y", "text": texts[1]}
    kept = []
    for name, shards in (("a", [[one], [other], [third]]), ("b", [[third], [other], [one]])):
        dedupe(corpus, {f"{number}.jsonl": shard for number, shard in enumerate(shards)}, name)
        pairs = zip(corpus.records(f"{name}documents"), corpus.records(f"{name}attributes"), strict=True)
        kept.append(
            sorted(document["text"] for document, marks in pairs if not any(marks["attributes"]["duplicate"].values()))
        )
    assert kept[0] == kept[1]
    assert texts[1] in kept[0]


def test_repeated_paragraphs_are_spans_of_all_but_one(corpus: Any) -> None:
    texts = passages()[:5]
    footer = "This page was last changed on a rainy day in November."
    documents = [{"id": str(number), "text": f"{text}\n{footer}\nshort\n"} for number, text in enumerate(texts)]
    attributes = dedupe(corpus, {"a.jsonl": documents[:2], "b.jsonl": documents[2:]})
    removed = {
        document["id"]: [
            document["text"][start:end] for start, end, _ in attributes[document["id"]]["duplicate_paragraphs"]
        ]
        for document in documents
    }
    assert sorted(removed.values()) == [[]] + [[f"{footer}\n"]] * 4
    report = corpus.bytes_of("duplicates")["report.json"]
    assert b'"repeated_paragraphs": 4' in report


def test_paragraphs() -> None:
    text = "one line\r\n\nanother one\nshort"
    assert [text[start:end] for start, end in paragraphs_of(text, 6)] == ["one line\r\n", "another one\n"]


def test_of_a_damaged_shard_what_consolidate_could_read_is_deduplicated(corpus: Any) -> None:
    folder = Path(corpus.path("documents"))
    folder.mkdir()
    lines = [json.dumps({"id": str(number), "text": f"{number % 90} {'x' * 50}"}) for number in range(600)]
    (folder / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode())[:-200])
    steps = [corpus.path(step) for step in ("fingerprints", "duplicates", "attributes")]
    with pytest.raises(DataError, match=r"a\.jsonl\.gz is cut"):
        fingerprint(FingerprintConfig(str(folder), output_path=steps[0]))
    whole = corpus.path("whole")
    consolidate(ConsolidateConfig(str(folder), damaged_shards="keep_what_is_readable", output_path=whole))
    fingerprint(FingerprintConfig(whole, output_path=steps[0]))
    report = find_duplicates(FindDuplicatesConfig(steps[0], whole, output_path=steps[1]))
    mark_duplicates(MarkDuplicatesConfig(whole, steps[1], output_path=steps[2]))
    assert corpus.summary("whole")["tallies"]["damaged shards"] == 1
    summary = corpus.summary("attributes")
    assert 90 < summary["read"] == summary["written"] == report["documents"] < 600
    assert report["kept"] == 90


def test_bands_that_are_refused(corpus: Any) -> None:
    with pytest.raises(DataError, match="5 bands do not divide signatures of 128"):
        dedupe(corpus, {"a.jsonl": [{"id": "a", "text": "b"}]}, bands=5)


LINE = "a line that is as long as a paragraph has to be"
TEXTS = {"a": f"{LINE}\n{LINE}", "b": f"{LINE}\n{LINE}", "c": "one"}


@pytest.mark.parametrize(
    "changed",
    [
        {**TEXTS, "d": "two"},
        {"a": TEXTS["a"], "b": TEXTS["b"]},
        {"c": TEXTS["c"], "a": TEXTS["a"], "b": TEXTS["b"]},
        {**TEXTS, "b": "two"},
        {**TEXTS, "b": f" {TEXTS['b']}"},
        {**TEXTS, "a": LINE, "b": LINE},
    ],
    ids=["more", "fewer", "order", "text", "space", "paragraphs"],
)
def test_documents_that_have_changed_are_refused(changed: dict[str, str], corpus: Any) -> None:
    """Verdicts are about documents by their places: another one there would get that of its neighbour."""
    dedupe(corpus, {"a.jsonl": [{"id": id, "text": text} for id, text in TEXTS.items()]})
    given = corpus.write("documents", {"a.jsonl": [{"id": id, "text": text} for id, text in changed.items()]})
    with pytest.raises(DataError, match="has changed since its fingerprints were made"):
        mark_duplicates(MarkDuplicatesConfig(given, corpus.path("duplicates"), SHORTEST, output_path=corpus.path("y")))


@pytest.mark.parametrize("made_with", [None, SHORTEST - 5])
def test_other_paragraphs_than_those_of_the_fingerprints_are_refused(made_with: int | None, corpus: Any) -> None:
    """They would be taken for each other, by their places."""
    text = f"{LINE[: SHORTEST - 2]}\n{LINE}\n{LINE}"
    dedupe(corpus, {"a.jsonl": [{"id": "a", "text": text}]}, shortest_paragraph=made_with)
    config = MarkDuplicatesConfig(
        corpus.path("documents"), corpus.path("duplicates"), SHORTEST, output_path=corpus.path("y")
    )
    with pytest.raises(DataError, match=f"shortest_paragraph is {SHORTEST}, but {made_with} in the fingerprints"):
        mark_duplicates(config)


@pytest.mark.parametrize("unit", ["word", "character"])
def test_a_shingle_is_the_same_whatever_stands_around_its_text(unit: Any) -> None:
    """Texts are hashed many at a time; equal shingles, and only these, are equal in any company."""
    shingler = Shingler(ShingleSettings(unit=unit, size=3))
    texts = ["a b c d", "", "a", "b c d e", "a b c", "x" * 5]
    alone = [shingler.shingles(text) for text in texts]
    assert shingler.signatures(texts).tolist() == [shingler.signatures([text])[0].tolist() for text in texts]
    if unit == "word":
        assert [len(hashes) for hashes in alone] == [2, 1, 1, 2, 1, 1]
        assert alone[0] == [*alone[4], alone[3][0]]
        assert len({hash for hashes in alone for hash in hashes}) == 6
