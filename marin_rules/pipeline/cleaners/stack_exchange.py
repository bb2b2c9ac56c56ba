"""Threads of Stack Exchange: a question with its answers, the accepted one first, then by votes.

A record is `{"id", "title", "html", "tags", "score", "answers": [{"id", "html", "score", "accepted"}]}`, where `html`
is the body of the question. The page is the title, the question, and the answers, under a heading each. The answers are
no longer a field of the document.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from marin_rules.pipeline.cleaners.pages import Unusable, Unwanted, parsed, remove_matching
from marin_rules.pipeline.core.records import Record

if TYPE_CHECKING:
    from resiliparse.parse.html import HTMLTree

_SURROUNDINGS = ("style", "script", "img", ".snippet-result", ".post-notice")


@dataclass(frozen=True)
class StackExchangeCleaner:
    lowest_question_score: int | None = None
    """Threads whose question has fewer votes are left out; None: none are."""

    lowest_answer_score: int | None = None
    """Answers with fewer votes are left out, the accepted one too."""

    most_answers: int | None = None
    """Of those that are left, the first."""

    needs_answer: bool = True
    """Whether threads without a remaining answer are left out."""

    used_fields: ClassVar[Sequence[str]] = ("answers",)

    kind: Literal["stack_exchange"] = field(default="stack_exchange", init=False)

    def clean(self, record: Record) -> HTMLTree:
        answers = record.get("answers")
        if not isinstance(answers, list) or not all(_is_answer(answer) for answer in answers):
            raise Unusable("not a thread", "answers are a list of objects with html, a score, and accepted")
        if not _is_number(record.get("score")) or not isinstance(record.get("title"), str):
            raise Unusable("not a thread", "a thread has a title and a score")
        if self.lowest_question_score is not None and record["score"] < self.lowest_question_score:
            raise Unwanted(f"a question with a score below {self.lowest_question_score}")
        chosen = self._chosen(answers)
        if self.needs_answer and not chosen:
            raise Unwanted("a question without an answer that is good enough")
        parts = [f"<h1>{html.escape(record['title'])}</h1>", "<h2>Question</h2>", _body(record["html"])]
        for answer in chosen:
            parts.append("<h2>Accepted answer</h2>" if answer["accepted"] else "<h2>Answer</h2>")
            parts.append(_body(answer["html"]))
        return parsed("".join(parts))

    def _chosen(self, answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        lowest = self.lowest_answer_score
        good = [answer for answer in answers if lowest is None or answer["score"] >= lowest]
        good.sort(key=lambda answer: (not answer["accepted"], -answer["score"]))
        return good[: self.most_answers]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_answer(answer: object) -> bool:
    if not isinstance(answer, dict):
        return False
    return (
        isinstance(answer.get("html"), str)
        and _is_number(answer.get("score"))
        and isinstance(answer.get("accepted"), bool)
    )


def _body(post: str) -> str:
    """A single complete post: one that leaves an element open must not swallow the next."""
    tree = parsed(f"<div>{post}</div>")
    remove_matching(tree, _SURROUNDINGS)
    return "".join(node.html for node in tree.body.child_nodes)
