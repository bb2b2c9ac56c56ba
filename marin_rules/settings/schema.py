"""What is wrong with a settings file, by its JSON schema: the first problem, with everything that a message needs.

The schemas are `config/*.schema.yaml`. A key's `description` there says what to write. A `format` is one of those here:
a string that some function of ours must be able to read. Values are not changed, and nothing is filled in.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_rules.errors import SettingsError
from marin_rules.units import parse_memory, parse_minutes
from marin_rules.urls import check_prefix

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import ValidationError

_KINDS = {
    "object": "a mapping",
    "array": "a list",
    "string": "a string",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
}
"""What people call the types of JSON, with their articles."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a file."""

    where: str
    """The key, with dots between its parts; empty for the file as a whole."""

    value: Any
    message: str
    """What is wrong with it, after `<where> `; without what to write instead."""

    advice: str | None = None
    """What to write instead."""


def first_problem(schema_path: Path, content: Mapping[str, Any]) -> Problem | None:
    """The first thing in `content` that its schema does not allow; of two, the one nearer to the top.

    A key that is left blank counts as absent, but a name chosen by the user, as below `gpus`, does not.
    """
    odd = next(_odd_keys(content), None)
    if odd is not None:
        return odd
    validator = _validator(schema_path)
    given = _without_blanks(content, validator.schema)
    errors = sorted(validator.iter_errors(given), key=lambda error: len(error.absolute_path))
    return _problem(errors[0]) if errors else None


def known_keys(schema_path: Path) -> list[str]:
    """The keys at the top of a file."""
    schema: Any = _validator(schema_path).schema
    return list(schema["properties"])


def unknown_key(key: str, known: Sequence[str]) -> str:
    """The words after `unknown key`."""
    close = difflib.get_close_matches(key, known, n=1)
    return f"{key!r}. {f'Did you mean {close[0]!r}? ' if close else ''}Known keys: {', '.join(known)}."


def kind(value: object) -> str:
    """What people call the type of a value, with its article."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    types = {dict: "object", list: "array", str: "string", int: "number", float: "number"}
    name = types.get(type(value))
    return f"a {type(value).__name__}" if name is None else _KINDS[name]


@cache
def _validator(schema_path: Path) -> Draft202012Validator:
    import yaml
    from jsonschema import Draft202012Validator

    schema = yaml.safe_load(schema_path.read_text(encoding="utf-8"))
    return Draft202012Validator(schema, format_checker=_formats())


def _formats() -> FormatChecker:
    """How strings that a pattern cannot describe are checked: by the very functions that convert them later."""
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    checker.checks("time limit", raises=ValueError)(_reads(parse_minutes))
    checker.checks("memory", raises=ValueError)(_reads(parse_memory))
    checker.checks("prefix", raises=SettingsError)(_reads(check_prefix))
    checker.checks("bucket name", raises=ValueError)(_reads(_bucket_name))
    checker.checks("temporary path")(_is_temporary_path)
    return checker


def _reads(parse: Any) -> Any:
    def check(value: object) -> bool:
        if isinstance(value, str):  # Otherwise its type is refused already.
            parse(value)
        return True

    return check


def _bucket_name(text: str) -> None:
    if "/" in text or not text.strip():
        name = text.partition("://")[2].strip("/") or "my-bucket"
        raise ValueError(f"write the bucket's name alone: {name}")


def _is_temporary_path(value: object) -> bool:
    """A path in a bucket that differs with `{days}`."""
    if not isinstance(value, str):
        return True
    try:
        differs = value.format(days=1) != value.format(days=2)
    except (KeyError, IndexError, ValueError):
        return False
    return differs and not value.startswith("/") and not value.endswith("/")


def _without_blanks(content: Any, schema: Any) -> Any:
    if not isinstance(content, dict) or not isinstance(schema, dict):
        return content
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    return {
        key: _without_blanks(value, known.get(key, others))
        for key, value in content.items()
        if value is not None or key not in known
    }


def _odd_keys(content: Any, where: str = "") -> Iterator[Problem]:
    """Keys that YAML has read as numbers or truth values: a schema knows only strings."""
    if isinstance(content, dict):
        for key, value in content.items():
            if not isinstance(key, str):
                message = f"has the key {key!r}; a key must be a string, not {kind(key)}"
                yield Problem(where, content, message, f"it in quotes: '{key}'")
                return
            yield from _odd_keys(value, f"{where}.{key}" if where else key)


def _problem(error: ValidationError) -> Problem:
    where = _dotted(error.absolute_path)
    value: Any = error.instance
    expected: Any = error.validator_value
    schema: Any = error.schema
    advice = schema.get("description")
    if error.validator == "additionalProperties":
        known = list(schema["properties"])
        unknown = next(key for key in value if key not in known)
        return Problem(where, value, f"has an unknown key {unknown_key(unknown, known)}")
    message = f"has the key {value!r}" if "propertyNames" in error.absolute_schema_path else f"is {value!r}"
    if error.validator == "type":
        wanted = expected[0] if isinstance(expected, list) else expected
        message += f"; it must be {_KINDS[wanted]}, not {kind(value)}"
        advice = None if wanted == "object" else advice
    elif error.validator == "minimum":
        message += f"; it must be at least {expected}"
    elif error.cause is not None and advice is None:
        message += f": {error.cause}"
    return Problem(where, value, message, advice)


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
