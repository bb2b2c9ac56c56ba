"""Published shapes into the project's schemas: each there, the odd ones, and those that are rejected."""

from __future__ import annotations

from typing import Any

import pytest

from marin_rules.pipeline.convert import ConvertConfig, convert
from marin_rules.pipeline.core.errors import DataError


def say(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


ASKED, ANSWERED = say("user", "Why?"), say("assistant", "Because.")
PAIR = {"prompt": [ASKED], "chosen": [ANSWERED], "rejected": [say("assistant", "No.")]}


def converted(corpus: Any, shape: Any, *records: Any) -> tuple[list[Any], list[str]]:
    """What becomes of records, and the reasons of those that are rejected."""
    given = corpus.write("in", {"a.jsonl": records})
    convert(ConvertConfig(given, shape, source="s", output_path=corpus.path("out")))
    return corpus.records("out"), [reject["reason"] for reject in corpus.rejects("out")]


@pytest.mark.parametrize(
    ("shape", "record", "made"),
    [
        ("messages", {"messages": [ASKED, ANSWERED]}, {"messages": [ASKED, ANSWERED]}),
        (
            "sharegpt",
            {"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "Because."}]},
            {"messages": [ASKED, ANSWERED]},
        ),
        ("instruction", {"instruction": "Why?", "output": "Because."}, {"messages": [ASKED, ANSWERED]}),
        (
            "instruction",
            {"instruction": "Add", "input": "1 and 2", "response": "3"},
            {"messages": [say("user", "Add\n\n1 and 2"), say("assistant", "3")]},
        ),
        ("pairs", {"prompt": "Why?", "chosen": "Because.", "rejected": "No."}, PAIR),
        (
            "pairs",
            {"prompt": "Why?", "chosen": [ASKED, ANSWERED], "rejected": [ASKED, say("assistant", "No.")]},
            PAIR,
        ),
        ("question_answer", {"question": "Why?", "answer": ["Because.", "No."]}, {"text": "Why?\n\nBecause."}),
        (
            "question_answer",
            {"context": "It rains.", "question": "Why?", "answer": "Clouds."},
            {"text": "It rains.\n\nWhy?\n\nClouds."},
        ),
    ],
)
def test_shapes(shape: str, record: Any, made: Any, corpus: Any) -> None:
    assert converted(corpus, shape, {"id": 7, **record}) == ([{"id": "7", "source": "s", **made}], [])


def test_other_fields_are_kept_in_metadata(corpus: Any) -> None:
    record = {"id": "a", "source": "mine", "metadata": {"year": 1851}, "score": 3, "question": "Why?", "answer": "So."}
    made = {"id": "a", "source": "mine", "text": "Why?\n\nSo.", "metadata": {"year": 1851, "score": 3}}
    assert converted(corpus, "question_answer", record) == ([made], [])


def test_ids_come_from_contents(corpus: Any) -> None:
    one, other = {"question": "Why?", "answer": "So."}, {"question": "Who?", "answer": "They."}
    (first, second), _ = converted(corpus, "question_answer", one, other)
    assert first["id"] != second["id"]
    (again,), _ = converted(corpus, "question_answer", {"answer": "They.", "question": "Who?"})
    assert again["id"] == second["id"]


def test_an_id_is_there_once(corpus: Any) -> None:
    """Whether it was text, a number, or came from the contents."""
    record = {"question": "Why?", "answer": "So."}
    records = [{"id": id, **record} for id in (1, "1", 1, 2)]
    made, reasons = converted(corpus, "question_answer", *records, record, record)
    assert [document["id"] for document in made[:2]] == ["1", "2"]
    assert len(made) == 3
    assert reasons == ["the id was there before"] * 3


@pytest.mark.parametrize(
    ("shape", "record", "reason"),
    [
        ("messages", {"text": "x"}, "no messages"),
        ("messages", {"messages": []}, "messages is empty"),
        ("messages", {"messages": [say("robot", "x")]}, "messages has a message with an unknown role"),
        ("sharegpt", {"conversations": [{"from": "human"}]}, "a turn without value"),
        ("sharegpt", {"conversations": [{"from": "moon", "value": "x"}]}, "a turn from somebody unknown"),
        ("sharegpt", {"conversations": [{"from": ["human"], "value": "x"}]}, "a turn from somebody unknown"),
        ("sharegpt", {"conversations": "x"}, "conversations is not a list"),
        (
            "pairs",
            {"prompt": "x", "chosen": [{"role": {}, "content": "y"}], "rejected": "z"},
            "chosen has a message with an unknown role",
        ),
        ("instruction", {"instruction": "x"}, "no response"),
        ("instruction", {"instruction": "x", "input": 3, "output": "y"}, "input is not text"),
        ("pairs", {"prompt": "x", "chosen": "y", "rejected": "y"}, "chosen and rejected are the same"),
        ("pairs", {"prompt": "x", "chosen": "y"}, "no rejected"),
        ("question_answer", {"question": "x", "answer": []}, "no answer"),
        ("question_answer", {"question": "x", "answer": "y", "metadata": 3}, "metadata is not an object"),
        (
            "question_answer",
            {"question": "x", "answer": "y", "n": 1, "metadata": {"n": 2}},
            "n is both a field and in metadata",
        ),
    ],
)
def test_what_is_rejected(shape: str, record: Any, reason: str, corpus: Any) -> None:
    with pytest.raises(DataError, match=rf"all 1 records below .* were rejected \({reason}: 1\)"):
        converted(corpus, shape, record)
    assert corpus.records("out") == []
    assert [reject["reason"] for reject in corpus.rejects("out")] == [reason]


def test_an_unknown_shape_is_refused(corpus: Any) -> None:
    with pytest.raises(DataError, match="no shape 'alpaca': use one of messages, sharegpt"):
        converted(corpus, "alpaca", {})
