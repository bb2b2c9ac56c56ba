"""Evaluation items that stand in documents: found wherever they stand, and by how much of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.decontaminate import DecontaminateConfig, decontaminate

TEXT = (Path(__file__).parents[1] / "data" / "moby_dick" / "chapter_5.txt").read_text()
WORDS = re.findall(r"\w+", TEXT)
ITEM = " ".join(WORDS[200:240])
HALF = " ".join(WORDS[200:226])
"""26 words: 14 of the item's 28 n-grams of 13."""


def scores(corpus: Any, documents: dict[str, str], sets: dict[str, list[str]], **options: Any) -> dict[str, Any]:
    given = corpus.write("in", {"a.jsonl": [{"id": id, "text": text} for id, text in documents.items()]})
    folders = {
        name: corpus.write(name, {"a.jsonl": [{"id": str(n), "text": text} for n, text in enumerate(items)]})
        for name, items in sets.items()
    }
    decontaminate(DecontaminateConfig(given, folders, output_path=corpus.path("out"), **options))
    return {record["id"]: record["attributes"]["contamination"] for record in corpus.records("out")}


def test_the_share_of_an_item_that_a_document_contains(corpus: Any) -> None:
    other = "what is the capital of a country that nobody has ever heard of until now"
    documents = {
        "whole": TEXT,
        "quoted": f"They say: {ITEM.upper().replace(' ', ', ')}!",
        "half": f"nothing {HALF} else",
        "short": " ".join(WORDS[200:211]),
        "clean": " ".join(reversed(WORDS)),
        "empty": "",
    }
    found = scores(corpus, documents, {"novel": [other, ITEM], "quiz": [other]})
    assert found == {
        "whole": {"novel": 1.0, "quiz": 0.0},
        "quoted": {"novel": 1.0, "quiz": 0.0},
        "half": {"novel": 0.5, "quiz": 0.0},
        "short": {"novel": 0.0, "quiz": 0.0},
        "clean": {"novel": 0.0, "quiz": 0.0},
        "empty": {"novel": 0.0, "quiz": 0.0},
    }
    assert corpus.summary("out")["tallies"] == {"documents with words of novel": 3}


def test_shorter_ngrams_and_items_that_are_too_short(corpus: Any) -> None:
    documents = {"short": " ".join(WORDS[200:211])}
    assert scores(corpus, documents, {"novel": [ITEM, "Why?"]}, ngram=8)["short"]["novel"] == round(4 / 33, 4)
    told = json.loads(corpus.bytes_of("out")["evaluation.json"])
    assert told == {"novel": {"items": 2, "too_short": 1}}


def test_sets_that_cannot_be_looked_for_are_refused(corpus: Any) -> None:
    given = corpus.write("in", {"a.jsonl": [{"id": "a", "text": "b"}]})
    empty, bad = corpus.path("empty"), corpus.write("bad", {"a.jsonl": [{"id": "q", "question": "Why?"}]})
    for folder, told in ((empty, "the evaluation set quiz has no items"), (bad, "has bad items.*'no text': 1")):
        with pytest.raises(DataError, match=told):
            decontaminate(DecontaminateConfig(given, {"quiz": folder}, output_path=corpus.path("out")))
