"""Pages of known kinds: the exact text that is left of them, and what becomes of records of other kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.cleaners import Ar5ivCleaner, StackExchangeCleaner, WikipediaCleaner
from marin_rules.pipeline.extract import ExtractConfig, extract

PAGES = Path(__file__).parents[1] / "data" / "known_pages"
THREAD = json.loads((PAGES / "thread.json").read_text())

WHALES = """\
Right whale

Right whales are whales of three kinds. They weigh up to $10^{5}$ kilograms.

Life

They eat copepods & live long.

  • They swim slowly.
  • They float when dead.

Notes on song

They moan."""

FLOATING = r"""On Floating

Abstract.

We show that $\rho<1$ floats.

Introduction

Bodies float as [1] says:

$$\displaystyle F \displaystyle=\rho Vg,$$

$$\displaystyle G=mg.$$

So they do."""


def page(name: str) -> str:
    return (PAGES / name).read_text()


def texts(corpus: Any, cleaner: Any, *records: dict[str, Any], **settings: Any) -> list[str]:
    given = corpus.write("in", {"a.jsonl": records})
    extract(ExtractConfig(given, cleaner=cleaner, output_path=corpus.path("out"), **settings))
    return [document["text"] for document in corpus.records("out")]


def test_an_article_of_wikipedia(corpus: Any) -> None:
    record = {"id": "1", "title": "Right whale", "url": "https://w/Right_whale", "html": page("wikipedia.html")}
    assert texts(corpus, WikipediaCleaner(), record) == [WHALES]
    (document,) = corpus.records("out")
    assert document == {
        "id": "1",
        "title": "Right whale",
        "url": "https://w/Right_whale",
        "source": "web",
        "text": WHALES,
    }


def test_an_article_as_markdown_keeps_its_structure(corpus: Any) -> None:
    record = {"id": "1", "title": "Right whale", "html": page("wikipedia.html")}
    (text,) = texts(
        corpus, WikipediaCleaner(keep_tables=True), record, library="html-to-markdown", text_format="markdown"
    )
    assert text.startswith("# Right whale\n")
    assert "## Life\n" in text
    assert "| 1 | 2 |" in text
    assert "infobox" not in text


def test_sections_whose_headings_stand_beside_their_text(corpus: Any) -> None:
    record = {"id": "1", "html": page("wikipedia_flat.html")}
    (text,) = texts(corpus, WikipediaCleaner(), record)
    assert text == "A page whose headings stand beside its text.\n\nHabitat\n\nThe sea."
    (text,) = texts(corpus, WikipediaCleaner(sections_without_prose=["of the archive"]), {**record, "id": "another"})
    assert "A link." in text
    assert "Another link." not in text
    assert "The sea." in text


def test_a_redirect_is_no_article(corpus: Any) -> None:
    redirect = '<div class="redirectMsg"><p>Redirect to:</p><ul><li><a href="./Whale">Whale</a></li></ul></div>'
    texts(corpus, WikipediaCleaner(), {"id": "1", "html": redirect}, {"id": "2", "html": "<p>Text</p>"})
    summary = corpus.summary("out")
    assert (summary["read"], summary["written"], summary["dropped"]) == (2, 1, {"a redirect": 1})


def test_a_paper_of_ar5iv(corpus: Any) -> None:
    assert texts(corpus, Ar5ivCleaner(), {"id": "0000.00000", "html": page("ar5iv.html")}) == [FLOATING]


def test_citations_can_go(corpus: Any) -> None:
    (text,) = texts(corpus, Ar5ivCleaner(keep_citations=False), {"id": "1", "html": page("ar5iv.html")})
    assert "Bodies float as says:" in text


def test_what_is_no_paper_is_rejected(corpus: Any) -> None:
    bad = {"id": "1", "html": "<p>Conversion failed</p>"}, {"id": "2", "html": ""}
    assert len(texts(corpus, Ar5ivCleaner(), *bad, {"id": "3", "html": page("ar5iv.html")})) == 1
    assert {reject["reason"] for reject in corpus.rejects("out")} == {"not a page of LaTeXML"}
    assert corpus.summary("out")["rejected"] == {"not a page of LaTeXML": 2}


def test_a_thread_has_its_accepted_answer_first_and_the_others_by_votes(corpus: Any) -> None:
    (text,) = texts(corpus, StackExchangeCleaner(), THREAD)
    assert text == (
        "How do I tie a <bowline>?\n\nQuestion\n\nMy knot slips.\n\nover\n  under\n\nWhat now?\n\n"
        "Accepted answer\n\nWatch a sailor.\n\nAnswer\n\nThe rabbit comes out of the hole.\n\n"
        "Answer\n\nAsk.\n\nAnswer\n\nUse glue."
    )
    (document,) = corpus.records("out")
    del document["text"]
    assert document == {"id": "7", "title": THREAD["title"], "tags": ["knots", "ropes"], "score": 3, "source": "web"}


@pytest.mark.parametrize(
    ("settings", "answers"),
    [
        ({"lowest_answer_score": 12}, ["The rabbit comes out of the hole.", "Ask."]),
        ({"lowest_answer_score": 0, "most_answers": 2}, ["Watch a sailor.", "The rabbit comes out of the hole."]),
        ({"lowest_answer_score": 99, "needs_answer": False}, []),
    ],
)
def test_answers_are_chosen_by_votes(settings: dict[str, Any], answers: list[str], corpus: Any) -> None:
    (text,) = texts(corpus, StackExchangeCleaner(**settings), THREAD)
    everything = ["Watch a sailor.", "The rabbit comes out of the hole.", "Ask.", "Use glue."]
    assert [answer for answer in everything if answer in text] == answers


def test_threads_are_dropped_or_rejected_with_reasons_that_add_up(corpus: Any) -> None:
    answer = {"html": "<p>x</p>", "score": 1, "accepted": False}
    records = [
        THREAD,
        {**THREAD, "id": "low", "score": 1},
        {**THREAD, "id": "unanswered", "answers": [{**answer, "score": -1}]},
        {"id": "page", "html": "<p>Text</p>"},
        {**THREAD, "id": "text", "answers": "none"},
        {**THREAD, "id": "cut", "answers": [{"html": "<p>x</p>"}]},
        {**THREAD, "id": "boolean", "score": True},
        {**THREAD, "id": "untitled", "title": None},
    ]
    cleaner = StackExchangeCleaner(lowest_question_score=2, lowest_answer_score=0)
    assert len(texts(corpus, cleaner, *records)) == 1
    summary = corpus.summary("out")
    assert summary["dropped"] == {
        "a question with a score below 2": 1,
        "a question without an answer that is good enough": 1,
    }
    assert summary["rejected"] == {"not a thread": 5}
    assert summary["read"] == 8
