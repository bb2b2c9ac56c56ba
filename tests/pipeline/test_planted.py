"""The tutorial's own steps: passages of books, and the count of what was planted and found."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.consolidate import Condition, ConsolidateConfig, consolidate
from marin_rules.pipeline.core.errors import DataError


@pytest.fixture
def tutorials(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`tutorials("planted")` is that module."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    return lambda name: importlib.import_module(f"experiments.tutorials.{name}")


# --- passages


def test_passages_are_the_whole_text_and_end_with_sentences(tutorials: Any) -> None:
    text = "One two. Three four five!\r\n\r\nSix? Seven e.g. eight\nnine. Ten"
    cut = tutorials("passages").passages_of
    assert list(cut(text, 3)) == ["One two. Three four five!", "Six? Seven e.g.", "eight\nnine. Ten"]
    assert list(cut(text, 1000)) == [text.replace("\r\n", "\n")]
    assert list(cut(" \n", 3)) == []


def test_whole_passages_are_held_out_and_the_division_is_by_id(corpus: Any, tutorials: Any) -> None:
    passages = tutorials("passages")
    for name in ("a", "b"):
        folder = corpus.folder / "books" / name
        folder.mkdir(parents=True)
        folder.joinpath("text.txt").write_text("Word word word. " * 300 + "Rest.")
        folder.joinpath("read.me").write_text("No text of the book.")
    books = {name: corpus.path(f"books/{name}") for name in ("a", "b")}
    counts = passages.cut_passages(
        passages.PassagesConfig(books, words=3, held_out=0.2, shards=2, output_path=corpus.path("out"))
    )
    texts, held_out = corpus.records("out/texts"), corpus.records("out/held_out")
    assert counts == {"texts": len(texts), "held_out": len(held_out)}
    assert len(texts) + len(held_out) == 602
    assert 60 < len(held_out) < 180
    assert {record["text"] for record in held_out} == {"Word word word."}
    assert sorted(corpus.read("out/texts")) == ["part-00000-of-00002.jsonl", "part-00001-of-00002.jsonl"]
    with pytest.raises(DataError, match=r"c: there are no \.txt files below"):
        passages.cut_passages(passages.PassagesConfig({"c": corpus.path("nowhere")}, output_path=corpus.path("x")))


# --- what was planted


def document(id: str, truth: str, made_of: str | None = None) -> dict[str, Any]:
    return {"id": id, "text": id, "metadata": {"truth": truth, **({"made_of": made_of} if made_of else {})}}


@pytest.mark.parametrize(
    ("left_out", "found"),
    [
        ([], {"good": (2, 2), "exact_copy": (1, 0), "template": (1, 0)}),
        (["copy"], {"good": (2, 2), "exact_copy": (1, 1), "template": (1, 0)}),
        (["original"], {"good": (2, 2), "exact_copy": (1, 1), "template": (1, 0)}),
        (["original", "copy"], {"good": (2, 1), "exact_copy": (1, 1), "template": (1, 0)}),
        (["other", "junk"], {"good": (2, 1), "exact_copy": (1, 0), "template": (1, 1)}),
    ],
)
def test_one_of_two_copies_is_enough_and_one_has_to_stay(left_out: Any, found: Any, tutorials: Any) -> None:
    documents = [
        document("original", "good"),
        document("copy", "exact_copy", "original"),
        document("other", "good"),
        document("junk", "template", "other"),
        document("known", "template", "other"),
    ]
    table = tutorials("planted").found_by_kind(documents, dict.fromkeys(left_out, "why"), {"known"})
    assert {kind: (one.planted, one.found) for kind, one in table.items()} == found


def test_shares_are_counted_and_too_low_ones_fail_the_step(corpus: Any, tutorials: Any) -> None:
    planted = tutorials("planted")
    documents = [document(f"g{n}", "good") for n in range(8)] + [document(f"t{n}", "template") for n in range(4)]
    given = corpus.write("in", {"a.jsonl": documents, "b.jsonl": [document("k", "template")]})
    known = corpus.write("known", {"b.jsonl": [document("k", "template")]})
    one, two = corpus.path("one"), corpus.path("two")
    consolidate(ConsolidateConfig(given, [Condition("id not in ['t0', 't1', 'g0']")], output_path=one))
    consolidate(ConsolidateConfig(one, [Condition("id != 't2'")], output_path=two))

    def count(at_least: dict[str, float], name: str, filtered: list[str]) -> Any:
        config = planted.PlantedConfig(given, filtered, known, at_least, output_path=corpus.path(name))
        return planted.count_planted(config)

    assert count({"template": 0.75, "good": 0.875}, "out", [one, two]) == {"template": 0.75, "good": 0.875}
    told = json.loads(Path(corpus.path("out/planted.json")).read_text())
    assert told["template"]["fates"] == {"kept": 1, "not: id != 't2'": 1, "not: id not in ['t0', 't1', 'g0']": 2}
    assert "good,8,7 kept,0.875,0.875,7,0,1" in Path(corpus.path("out/report/planted.csv")).read_text()
    with pytest.raises(DataError, match=r"template: 3 of 4 found. That is less than it should be"):
        count({"template": 0.8}, "low", [one, two])
    assert Path(corpus.path("low/planted.json")).exists(), "what there is to see of it is there"
    with pytest.raises(DataError, match="no documents are navigation, only good, template"):
        count({"navigation": 0.8}, "none", [one, two])
    with pytest.raises(DataError, match="not the filters of one corpus"):
        count({}, "wrong", [two])
