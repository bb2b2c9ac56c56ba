"""Filters: what each keeps and drops, that the account adds up, and what fails rather than lose a document."""

from __future__ import annotations

import random
from typing import Any

import pytest

from marin_rules.pipeline.consolidate import (
    Condition,
    ConsolidateConfig,
    FindCutConfig,
    KeepFraction,
    RemoveSpans,
    Threshold,
    consolidate,
    find_cut,
)
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.expressions import compile_condition

DOCUMENTS = [
    {"id": "a", "text": "good text", "source": "books", "added": 12345678901234567890123},
    {"id": "b", "text": "bad text"},
    {"id": "c", "text": "a header\nand a body\n", "metadata": {"language": "en"}},
    {"id": "d", "text": "only a header\n"},
]
SCORES = {"a": 0.9, "b": 0.1, "c": 0.5, "d": 0.8}
SPANS = {"a": [], "b": [[0, 3, 1.0]], "c": [[0, 9, 1.0], [5, 9, 1.0], [9, 12, 0.2]], "d": [[0, 14, 1.0]]}


def attributes(id: str) -> dict[str, Any]:
    return {"id": id, "attributes": {"quality": {"high": SCORES[id]}, "length": 3, "spans": SPANS[id]}}


@pytest.fixture
def run(corpus: Any) -> Any:
    """Consolidates the documents with filters; the ids that stay, and the reasons of the others."""
    given = corpus.write("documents", {"a.jsonl": DOCUMENTS[:3], "b.jsonl": DOCUMENTS[3:]})
    corpus.write("attributes", {"a.jsonl": map(attributes, "cab"), "b.jsonl": [attributes("d")]})

    def consolidated(*filters: Any, **options: Any) -> tuple[list[str], dict[str, int]]:
        config = ConsolidateConfig(given, filters, output_format=".jsonl", output_path=corpus.path("out"), **options)
        consolidate(config)
        summary = corpus.summary("out")
        assert summary["read"] == 4 == summary["written"] + sum(summary["dropped"].values())
        return [record["id"] for record in corpus.records("out")], summary["dropped"]

    return consolidated


def quality(corpus: Any, **limits: Any) -> Threshold:
    return Threshold(corpus.path("attributes"), "quality", "high", **limits)


@pytest.mark.parametrize(
    ("limits", "kept", "dropped"),
    [
        ({"lower": 0.5}, ["a", "c", "d"], {"quality.high below 0.5": 1}),
        ({"upper": 0.5}, ["b", "c"], {"quality.high above 0.5": 2}),
        ({"lower": 0.4, "upper": 0.6}, ["c"], {"quality.high above 0.6": 2, "quality.high below 0.4": 1}),
    ],
)
def test_thresholds(limits: Any, kept: list[str], dropped: dict[str, int], run: Any, corpus: Any) -> None:
    assert run(quality(corpus, **limits)) == (kept, dropped)


def test_what_is_kept_is_kept_to_the_byte(run: Any, corpus: Any) -> None:
    assert run() == (["a", "b", "c", "d"], {})
    out, given = corpus.bytes_of("out"), corpus.bytes_of("documents")
    assert {name: out[name] for name in given} == given


def test_spans_are_taken_out_once_and_a_text_of_nothing_else_is_dropped(run: Any, corpus: Any) -> None:
    kept, dropped = run(RemoveSpans(corpus.path("attributes"), "spans"))
    assert (kept, dropped) == (["a", "b", "c"], {"nothing left of the text": 1})
    assert [record["text"] for record in corpus.records("out")] == ["good text", " text", "and a body\n"]
    assert corpus.summary("out")["tallies"] == {"characters removed": 3 + 9 + 14}


def test_conditions(run: Any, corpus: Any) -> None:
    assert run(Condition("len(text) > 8 and source != 'books'")) == (
        ["c", "d"],
        {"not: len(text) > 8 and source != 'books'": 2},
    )


def test_a_condition_that_makes_no_sense_for_a_document_rejects_it(corpus: Any) -> None:
    given = corpus.write("documents", {"a.jsonl": DOCUMENTS})
    condition = Condition("metadata['language'] == 'en'")
    consolidate(ConsolidateConfig(given, [condition], output_path=corpus.path("out")))
    assert [record["id"] for record in corpus.records("out")] == ["c"]
    assert corpus.summary("out")["rejected"] == {"a condition failed": 3}


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("__import__('os')", "only len"),
        ("text.lower() == 'a'", "only len"),
        ("text.__class__", "conditions do not know"),
        ("len(text) ** 2 > 4", "has 'Pow', which conditions do not know"),
        ("[x for x in text]", "conditions do not know"),
        ("len(text", "not an expression"),
    ],
)
def test_expressions_that_are_refused(expression: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        compile_condition(expression)


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 1.0])
def test_the_best_are_kept_however_they_are_divided(fraction: float, corpus: Any) -> None:
    chance = random.Random(1)
    scores = {f"{number}": chance.choice([0.1, 0.5, 0.5, 0.9]) for number in range(40)}
    kept = []
    for shards in (1, 3):
        ids = random.Random(shards).sample(sorted(scores), 40)
        parts = {f"{shard}.jsonl": ids[shard::shards] for shard in range(shards)}
        names = [f"{name}-{shards}" for name in ("documents", "attributes", "cut", "out")]
        given = corpus.write(names[0], {name: [{"id": id, "text": id} for id in part] for name, part in parts.items()})
        marks = corpus.write(
            names[1],
            {name: [{"id": id, "attributes": {"score": scores[id]}} for id in part] for name, part in parts.items()},
        )
        find_cut(FindCutConfig(marks, "score", fraction, output_path=corpus.path(names[2])))
        best = KeepFraction(marks, "score", corpus.path(names[2]))
        consolidate(ConsolidateConfig(given, [best], output_path=corpus.path(names[3])))
        kept.append(sorted(record["id"] for record in corpus.records(names[3])))
    assert kept[0] == kept[1]
    assert len(kept[0]) == fraction * 40
    left = [score for id, score in scores.items() if id not in kept[0]]
    assert not left or not kept[0] or min(scores[id] for id in kept[0]) >= max(left)


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5, 0.75])
def test_the_cut_says_how_many_are_kept_also_of_ids_in_several_shards(fraction: float, corpus: Any) -> None:
    names, ids = ("a.jsonl", "b.jsonl"), [f"{number}" for number in range(10)]
    given = corpus.write("documents", {name: [{"id": id, "text": name} for id in ids] for name in names})
    marks = corpus.write("marks", {name: [{"id": id, "attributes": {"score": 1}} for id in ids] for name in names})
    found = find_cut(FindCutConfig(marks, "score", fraction, output_path=corpus.path("cut")))
    best = KeepFraction(marks, "score", corpus.path("cut"))
    consolidate(ConsolidateConfig(given, [best], output_path=corpus.path("out")))
    assert fraction * 20 <= len(corpus.records("out")) == found["kept"] <= fraction * 20 + 1
    copies = [{record["id"] for record in records} for records in corpus.read("out").values()]
    assert copies[0] == copies[1]


def test_a_document_without_attributes_is_never_lost_silently(run: Any, corpus: Any) -> None:
    corpus.write("attributes", {"a.jsonl": [attributes("a"), attributes("c")]})
    filters = [quality(corpus, lower=0.6), Condition("id != 'b'")]
    with pytest.raises(DataError, match=r"a.jsonl: document 'b' has no quality.high in .*missing_attributes"):
        run(*filters)
    missing = f"no quality.high in {corpus.path('attributes')}"
    assert run(*filters, missing_attributes="drop") == (["a", "d"], {missing: 1, "quality.high below 0.6": 1})


def test_a_missing_attribute_may_be_kept_and_the_other_filters_still_hold(run: Any, corpus: Any) -> None:
    corpus.write("attributes", {"a.jsonl": [attributes("a"), attributes("c")]})
    filters = [quality(corpus, lower=0.6), Condition("id != 'b'")]
    assert run(*filters, missing_attributes="keep") == (["a", "d"], {"not: id != 'b'": 1, "quality.high below 0.6": 1})


@pytest.mark.parametrize(
    ("shards", "told"),
    [
        ({"a.jsonl": [*map(attributes, "abc"), attributes("d")]}, "attributes of 1 documents .* such as 'd'"),
        ({"a.jsonl": [*map(attributes, "abc"), "{cut"]}, "has bad records: {'not JSON': 1}"),
    ],
)
def test_attributes_of_something_else_are_refused(shards: Any, told: str, run: Any, corpus: Any) -> None:
    corpus.write("attributes", shards)
    with pytest.raises(DataError, match=told):
        run(quality(corpus, lower=0.5))


def test_attributes_that_are_not_there(run: Any, corpus: Any) -> None:
    with pytest.raises(DataError, match=r"elsewhere/a.jsonl does not exist"):
        run(Threshold(corpus.path("elsewhere"), "quality", lower=0.5))
    with pytest.raises(DataError, match=r"there is no cut\.json below"):
        run(KeepFraction(corpus.path("attributes"), "length", corpus.path("nothing")))
