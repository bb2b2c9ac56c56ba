"""Documents, conversations and preferences: the schemas of records, and what is wrong with one.

A record is passed along as the dictionary of its JSON line; fields that no schema names are kept, unchanged. The
`fault` of a schema is the reason why a record is rejected, in words that can be counted: no ids, no values.

| schema | fields |
|---|---|
| Document | `id`, `text`; optional `source`, `metadata` |
| Conversation | `id`, `messages` (`role`, `content`); optional `source`, `metadata` |
| Preference | `id`, `prompt`, `chosen`, `rejected` (messages each); optional `source`, `metadata` |
| Attributes | `id`, `attributes` (name -> value, label -> score or spans `[start, end, score]`); optional `source` |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

type Record = dict[str, Any]

type Fault = Callable[[Record], str | None]
"""Why a record does not fit a schema; None if it does."""

ROLES = frozenset({"system", "user", "assistant", "tool"})


_OPTIONAL = (("source", str, "text"), ("metadata", dict, "an object"))


def drop_nulls(record: Record) -> None:
    """An optional field that is null counts as absent, as in a table with a column that few records use."""
    for field, _, _ in _OPTIONAL:
        if field in record and record[field] is None:
            del record[field]


def document_fault(record: Record) -> str | None:
    if type(record.get("text")) is str and type(record.get("id")) is str and record["id"]:
        return _fault_of_optional(record)
    return _fault_of_id(record) or _fault_of_field(record, "text", str, "text")


def conversation_fault(record: Record) -> str | None:
    return _fault_of_id(record) or _fault_of_messages(record, "messages") or _fault_of_optional(record)


def preference_fault(record: Record) -> str | None:
    fault = _fault_of_id(record)
    for field in ("prompt", "chosen", "rejected"):
        fault = fault or _fault_of_messages(record, field)
    if fault is None and record["chosen"] == record["rejected"]:
        return "chosen and rejected are the same"
    return fault or _fault_of_optional(record)


def attributes_fault(record: Record) -> str | None:
    return (
        _fault_of_id(record) or _fault_of_field(record, "attributes", dict, "an object") or _fault_of_optional(record)
    )


def identified_fault(record: Record) -> str | None:
    """For stages that need an id and leave the rest to others."""
    return _fault_of_id(record)


def any_record_fault(record: Record) -> str | None:
    """For input in a different shape, which a stage converts."""
    return None


def _fault_of_id(record: Record) -> str | None:
    return _fault_of_field(record, "id", str, "text") or (None if record["id"] else "id is empty")


def _fault_of_optional(record: Record) -> str | None:
    for field, kind, name in _OPTIONAL:
        if field in record and not isinstance(record[field], kind):
            return f"{field} is not {name}"
    return None


def _fault_of_field(record: Record, field: str, kind: type, name: str) -> str | None:
    if field not in record:
        return f"no {field}"
    return None if isinstance(record[field], kind) else f"{field} is not {name}"


def _fault_of_messages(record: Record, field: str) -> str | None:
    if fault := _fault_of_field(record, field, list, "a list"):
        return fault
    if not record[field]:
        return f"{field} is empty"
    for place, message in enumerate(record[field]):
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            return f"{field} has a message without content"
        role = message.get("role")
        if not isinstance(role, str) or role not in ROLES:
            return f"{field} has a message with an unknown role"
        if role == "system" and place:
            return f"{field} has a system message that is not the first"
    return None
