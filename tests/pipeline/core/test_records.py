"""What fits a schema, and the words for what does not."""

from typing import Any

import pytest

from marin_rules.pipeline.core.records import attributes_fault, conversation_fault, document_fault, preference_fault

USER = {"role": "user", "content": "Why?"}
ANSWER = {"role": "assistant", "content": "Because."}
OTHER = {"role": "assistant", "content": "I do not know."}
SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ({"id": "1", "text": ""}, None),
        ({"id": "1", "text": "a", "source": "s", "metadata": {}, "added": 3}, None),
        ({"text": "a"}, "no id"),
        ({"id": "", "text": "a"}, "id is empty"),
        ({"id": 1, "text": "a"}, "id is not text"),
        ({"id": "1"}, "no text"),
        ({"id": "1", "text": None}, "text is not text"),
        ({"id": "1", "text": "a", "source": 3}, "source is not text"),
        ({"id": "1", "text": "a", "metadata": "m"}, "metadata is not an object"),
    ],
)
def test_documents(record: Any, fault: str | None) -> None:
    assert document_fault(record) == fault


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([SYSTEM, USER, ANSWER], None),
        ([], "messages is empty"),
        ("Why?", "messages is not a list"),
        ([USER, {"role": "assistant"}], "messages has a message without content"),
        (["Why?"], "messages has a message without content"),
        ([{"role": "gpt", "content": ""}], "messages has a message with an unknown role"),
        ([USER, SYSTEM], "messages has a system message that is not the first"),
    ],
)
def test_conversations(messages: Any, fault: str | None) -> None:
    assert conversation_fault({"id": "1", "messages": messages}) == fault


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, None),
        ({"chosen": [OTHER]}, "chosen and rejected are the same"),
        ({"prompt": []}, "prompt is empty"),
        ({"rejected": None}, "rejected is not a list"),
        ({"id": 5}, "id is not text"),
    ],
)
def test_preferences(changes: Any, fault: str | None) -> None:
    record = {"id": "1", "prompt": [USER], "chosen": [ANSWER], "rejected": [OTHER], **changes}
    assert preference_fault(record) == fault


def test_attributes() -> None:
    assert attributes_fault({"id": "1", "attributes": {"quality": 0.5}}) is None
    assert attributes_fault({"id": "1"}) == "no attributes"
    assert attributes_fault({"id": "1", "attributes": [0.5]}) == "attributes is not an object"
