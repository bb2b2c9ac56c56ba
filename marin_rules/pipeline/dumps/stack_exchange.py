"""Threads of a Stack Exchange site, from the `Posts.xml` of its dump.

Questions and answers are rows of one file, far apart. A part holds the threads whose number falls to it, and reads the
whole file for them: `parts` divides the memory, not the reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DamagedShard
from marin_rules.pipeline.core.records import Record
from marin_rules.pipeline.core.shard_files import chunks_of

_QUESTION, _ANSWER = "1", "2"
_TAG = re.compile(r"[^<>|]+")


def read_threads(path: str, name: str, part: int, parts: int, account: Account) -> Iterator[Record]:
    """A record for each question, with its answers: the accepted one first, then the better ones."""
    questions: dict[int, Record] = {}
    answers: dict[int, list[tuple[int, Record]]] = {}
    for number, row in enumerate(_rows(path, name), 1):
        kind = row.get("PostTypeId")
        thread = row.get("ParentId" if kind == _ANSWER else "Id", "")
        place = int(thread) if thread.isascii() and thread.isdigit() else 0  # Rows without a number fall to the first.
        if place % parts != part:
            continue
        account.bytes_read += len(row.get("Body", ""))
        if kind == _ANSWER and place and row.get("Body"):
            answers.setdefault(place, []).append((number, _post(row)))
            continue
        account.read += 1
        if kind not in (_QUESTION, _ANSWER):
            account.drop("a post of another kind")
        elif not place or not row.get("Body"):
            account.reject(number, "a post without number or body", id=row.get("Id"), content=str(row))
        elif place in questions:
            account.reject(number, "the id was there before", id=row.get("Id"), content=str(row))
        else:
            tags = _TAG.findall(row.get("Tags", ""))
            question = {**_post(row), "title": row.get("Title", ""), "tags": tags}
            questions[place] = {**question, "accepted": row.get("AcceptedAnswerId", "")}
    for place, question in sorted(questions.items()):
        accepted = question.pop("accepted")
        given = [{**post, "accepted": post["id"] == accepted} for _, post in answers.pop(place, [])]
        given.sort(key=lambda post: (not post["accepted"], -post["score"], int(post["id"] or 0)))
        account.tallies["answers"] += len(given)
        yield {**question, "answers": given}
    for orphans in answers.values():
        for number, post in orphans:
            account.read += 1
            account.reject(number, "an answer without its question", id=post["id"], content=post["html"])


def _post(row: dict[str, str]) -> dict[str, Any]:
    score = row.get("Score", "0")
    number = int(score) if re.fullmatch(r"-?[0-9]+", score) else 0
    return {"id": row.get("Id", ""), "html": row["Body"], "score": number}


def _rows(path: str, name: str) -> Iterator[dict[str, str]]:
    """The attributes of each row. Entities that a file declares itself are refused: they can expand without end."""
    rows: list[dict[str, str]] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag == "row":
            rows.append(attributes)

    def doctype(*declared: Any) -> None:
        raise DamagedShard(f"{path} declares a document type, which no dump does: refused")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = doctype
    try:
        for chunk in chunks_of(path, name):
            parser.Parse(chunk, False)
            yield from rows
            rows.clear()
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise DamagedShard(f"{path} is damaged or cut: {error}") from error
