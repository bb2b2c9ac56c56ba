"""Would Google take this request? Judged by what Google publishes about its services, not by our clients.

The tables in `discovery/` hold the names, types and values of all fields that a request may have, and which of them
only Google sets; for each method the patterns of its resource names, its parameters and its body. `take_discovery` made
them from the discovery documents of batch.v1 (2026-11-03), tpu.v2 (2026-10-01) and logging.v2 (2026-09-11).
`rest.json` has the few methods of other services that are asked over REST, from the same package: verb, path,
parameters, body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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


def objections_to_call(method: str, request: Mapping[str, Any]) -> list[str]:
    """What is wrong with a call over gRPC: the full name of its method, and its request as JSON."""
    found = _methods().get(method)
    return [f"{method}: no such method"] if found is None else list(_judge_call(found, request))


def _judge_call(method: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[str]:
    path, query, field = method["path"], method["query"], method["field"]
    for name, pattern in path.items():
        if not re.fullmatch(pattern, request.get(name, "")):
            yield f"{name}: {request.get(name)!r} does not match {pattern}"
    rest = {}
    for name, value in request.items():
        if name in query:
            yield from _judge({}, query[name], value, name)
        elif name not in path:
            rest[name] = value
    body = rest.pop(field, {}) if field else rest
    if method["body"] is not None:
        yield from objections(method["service"], method["body"], body)
    if field or method["body"] is None:
        yield from (f"{name}: unknown field" for name in rest)


@dataclass(frozen=True)
class RestMethod:
    """A method of a service, as Google publishes it."""

    id: str
    verb: str
    path: str
    query: Sequence[str] = ()
    body: Mapping[str, Any] | None = None

    def matches(self, verb: str, path: str) -> bool:
        pattern = re.sub(r"\\{\w+\\}", "[^/:]+", re.escape(self.path))
        return verb == self.verb and re.fullmatch(pattern, path) is not None

    def objections(self, query: Iterable[str], body: Any) -> list[str]:
        """What is wrong with a request for it."""
        unknown = [f"{name}: unknown parameter" for name in query if name not in self.query]
        if self.body is None:
            return unknown if body is None else [*unknown, "a body where none is taken"]
        return [*unknown, *_judge({}, self.body, body, self.id)]


def rest_method(service: str, verb: str, path: str) -> RestMethod | None:
    """The method of a service that a request is for; None if Google has none, or the table none."""
    table = json.loads((_FOLDER / "rest.json").read_text())
    methods = (RestMethod(**row) for row in table.get(service, ()))
    return next((method for method in methods if method.matches(verb, path)), None)


@cache
def _methods() -> Mapping[str, Any]:
    methods: Mapping[str, Any] = json.loads((_FOLDER / "methods.json").read_text())
    return methods


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
