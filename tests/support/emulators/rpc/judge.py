"""Would Google take this request? Judged by what Google publishes about its services, not by our clients.

The tables in `discovery/` hold the names, types and values of all fields that a request may have, and which of them
only Google sets. They were taken from the discovery documents of batch.v1 (2026-11-03) and tpu.v2 (2026-10-01), as
found in google-api-python-client 2.202.0. That package itself is 111 MB, for hundreds of services.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).with_name("discovery")
_DURATION = re.compile(r"-?\d+(\.\d+)?s")
_WHOLE_NUMBER = re.compile(r"-?\d+")


def objections(service: str, schema: str, document: Any) -> list[str]:
    """What is wrong with a JSON document that should be of this schema of a service, such as `batch.v1` and `Job`."""
    schemas = _schemas(service)
    return list(_judge(schemas, schemas[schema], document, schema))


@cache
def _schemas(service: str) -> Mapping[str, Any]:
    schemas: Mapping[str, Any] = json.loads((_FOLDER / f"{service}.json").read_text())
    return schemas


def _judge(schemas: Mapping[str, Any], schema: Mapping[str, Any], value: Any, place: str) -> Iterator[str]:
    if "$ref" in schema:
        yield from _judge(schemas, schemas[schema["$ref"]], value, place)
        return
    match schema.get("type"):
        case "object" if isinstance(value, dict):
            for key, inner in value.items():
                yield from _judge_field(schemas, schema, key, inner, f"{place}.{key}")
        case "array" if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _judge(schemas, schema["items"], item, f"{place}[{index}]")
        case "string" if schema.get("format") in ("int64", "uint64"):
            if not _WHOLE_NUMBER.fullmatch(str(value)):
                yield f"{place}: {value!r} is not a whole number"
        case "string" if isinstance(value, str):
            yield from _judge_text(schema, value, place)
        case "integer" if isinstance(value, int) and not isinstance(value, bool):
            return
        case "number" if isinstance(value, (int, float)):
            return
        case "boolean" if isinstance(value, bool):
            return
        case kind:
            yield f"{place}: {value!r} is not of type {kind}"


def _judge_field(
    schemas: Mapping[str, Any], schema: Mapping[str, Any], key: str, value: Any, place: str
) -> Iterator[str]:
    field = schema.get("properties", {}).get(key)
    if field is None:
        if "additionalProperties" not in schema:
            yield f"{place}: unknown field"
        else:
            yield from _judge(schemas, schema["additionalProperties"], value, place)
        return
    if field.get("readOnly"):
        yield f"{place}: output only"
    if field.get("deprecated"):
        yield f"{place}: deprecated"
    yield from _judge(schemas, field, value, place)


def _judge_text(schema: Mapping[str, Any], value: str, place: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is none of {', '.join(schema['enum'])}"
    if schema.get("format") == "google-duration" and not _DURATION.fullmatch(value):
        yield f"{place}: {value!r} is no duration"
