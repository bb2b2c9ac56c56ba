"""Conversations, preferences and question-answer sets in the shapes that people publish, into the project's schemas.

| shape | a record | becomes |
|---|---|---|
| `messages` | `messages`: role and content | conversation |
| `sharegpt` | `conversations`: from (human, gpt, system, tool) and value | conversation |
| `instruction` | `instruction`, optional `input`, `output` or `response` | conversation |
| `pairs` | `prompt`, `chosen` and `rejected`: text, or messages (that may repeat the prompt) | preference |
| `question_answer` | `question`, `answer` (text or a list of which the first counts); optional `context` | document |

A record that does not have the shape, or whose result breaks the schema, is rejected with the reason. A record without
an id gets one from a hash of its contents, so that it is the same wherever the record is. `source` and `metadata`
are kept; so are all other fields, in `metadata`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.fingerprints import digest
from marin_rules.pipeline.core.records import (
    Fault,
    Record,
    any_record_fault,
    conversation_fault,
    document_fault,
    preference_fault,
)
from marin_rules.pipeline.core.shard_map import DamagedShards, Shard, ShardSettings, map_shards

type Shape = Literal["messages", "sharegpt", "instruction", "pairs", "question_answer"]

_SHAREGPT_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}
_SHAREGPT_ROLES |= {"system": "system", "tool": "tool"}
_COMMON = ("id", "source", "metadata")


@dataclass(frozen=True)
class ConvertConfig:
    """Records below `input_path`, all of one shape, in the project's schema."""

    input_path: str | InputName
    shape: Shape
    source: str = ""
    """The source of records that name none."""

    damaged_shards: DamagedShards = "fail"
    output_format: str = ".jsonl.zst"
    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


class _NotOfTheShape(Exception):
    """Why a record is rejected."""


def convert(config: ConvertConfig) -> dict[str, Any]:
    """Write a shard for each shard, of the same name."""
    if config.shape not in _SHAPES:
        raise DataError(f"no shape {config.shape!r}: use one of {', '.join(_SHAPES)}")
    change, fields, fault = _SHAPES[config.shape]

    def transform(shard: Shard, account: Account) -> Iterator[Record]:
        seen: set[str] = set()
        for row in shard.rows(account, any_record_fault):
            try:
                made = _converted(row.record, change, fields, config.source)
                if reason := fault(made):
                    raise _NotOfTheShape(reason)
                if made["id"] in seen:
                    raise _NotOfTheShape("the id was there before")
            except _NotOfTheShape as why:
                account.reject(row.number, str(why), id=row.record.get("id"), content=str(row.record))
                continue
            seen.add(made["id"])
            yield made

    return map_shards(
        transform,
        str(config.input_path),
        config.output_path,
        output_format=config.output_format,
        settings=config.shards,
        damaged_shards=config.damaged_shards,
    )


def _converted(record: Record, change: Callable[[Record], Record], fields: tuple[str, ...], source: str) -> Record:
    import orjson

    metadata = record.get("metadata", {})
    if not isinstance(metadata, dict):
        raise _NotOfTheShape("metadata is not an object")
    other = {name: value for name, value in record.items() if name not in fields and name not in _COMMON}
    if repeated := sorted(other.keys() & metadata.keys()):
        raise _NotOfTheShape(f"{repeated[0]} is both a field and in metadata")
    content = change(record)
    id = record.get("id")
    if id is None:
        id = digest(orjson.dumps(record, option=orjson.OPT_SORT_KEYS).decode()).hex()
    made = {"id": id if isinstance(id, str) else str(id), "source": record.get("source", source), **content}
    return {**made, "metadata": {**metadata, **other}} if metadata or other else made


def _from_messages(record: Record) -> Record:
    return {"messages": _field(record, "messages", list)}


def _from_sharegpt(record: Record) -> Record:
    messages = []
    for turn in _field(record, "conversations", list):
        if not isinstance(turn, dict) or not isinstance(turn.get("value"), str):
            raise _NotOfTheShape("a turn without value")
        role = _SHAREGPT_ROLES.get(str(turn.get("from")))
        if role is None:
            raise _NotOfTheShape("a turn from somebody unknown")
        messages.append({"role": role, "content": turn["value"]})
    return {"messages": messages}


def _from_instruction(record: Record) -> Record:
    instruction = _field(record, "instruction", str)
    answer = _field(record, "output" if "output" in record else "response", str)
    more = record.get("input") or ""
    if not isinstance(more, str):
        raise _NotOfTheShape("input is not text")
    asked = f"{instruction}\n\n{more}" if more else instruction
    return {"messages": [_message("user", asked), _message("assistant", answer)]}


def _from_pair(record: Record) -> Record:
    prompt = _messages(record, "prompt", "user")
    answers = {}
    for name in ("chosen", "rejected"):
        messages = _messages(record, name, "assistant")
        begins_with_prompt = messages[: len(prompt)] == prompt
        answers[name] = messages[len(prompt) :] if begins_with_prompt else messages
    return {"prompt": prompt, **answers}


def _from_question(record: Record) -> Record:
    question = _field(record, "question", str)
    answer = record.get("answer")
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if not isinstance(answer, str):
        raise _NotOfTheShape("no answer")
    context = record.get("context") or ""
    if not isinstance(context, str):
        raise _NotOfTheShape("context is not text")
    return {"text": "\n\n".join(part for part in (context, question, answer) if part)}


def _field(record: Record, name: str, kind: type) -> Any:
    if name not in record:
        raise _NotOfTheShape(f"no {name}")
    if not isinstance(record[name], kind):
        raise _NotOfTheShape(f"{name} is not {'text' if kind is str else 'a list'}")
    return record[name]


def _messages(record: Record, name: str, role: str) -> list[Any]:
    value = record.get(name)
    if isinstance(value, str):
        return [_message(role, value)]
    messages: list[Any] = _field(record, name, list)
    return messages


def _message(role: str, content: str) -> Record:
    return {"role": role, "content": content}


_SHAPES: dict[str, tuple[Callable[[Record], Record], tuple[str, ...], Fault]] = {
    "messages": (_from_messages, ("messages",), conversation_fault),
    "sharegpt": (_from_sharegpt, ("conversations",), conversation_fault),
    "instruction": (_from_instruction, ("instruction", "input", "output", "response"), conversation_fault),
    "pairs": (_from_pair, ("prompt", "chosen", "rejected"), preference_fault),
    "question_answer": (_from_question, ("question", "answer", "context"), document_fault),
}
"""Shape -> how a record is converted, the fields that this uses, and the schema of the result."""
