"""Configs as plain data, for people and for files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from marin_rules.configs import field_names, is_spec
from marin_rules.functions import function_name
from marin_rules.identity import to_json

_PLAIN = (str, int, float, type(None))


def to_plain(value: Any) -> Any:
    """Any config as data that JSON can hold; functions by name, StepSpecs by path, the rest by their text."""
    if isinstance(value, _PLAIN) and not isinstance(value, Enum):
        return value
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return function_name(value)
    if is_spec(value):
        return value.output_path
    names = field_names(type(value))
    if names is not None:
        return {name: to_plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in value]
    return json.loads(to_json(value))
