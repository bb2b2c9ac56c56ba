"""What a step returned, as JSON that every reader understands. No return value undoes finished work.

Plain data, dataclasses, pydantic models, enums, paths, and the numbers and small arrays of numpy and its relatives have
a form of their own; None is `null`. Numbers that JSON does not have become strings that Python's `float` reads back:
"NaN", "Infinity", "-Infinity". The rest is kept as text, with a warning; so is a value that cannot even be shown,
without the text.
"""

from __future__ import annotations

import inspect
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from marin_rules.configs import field_names
from marin_rules.functions import function_name

MAX_DEPTH = 100
"""Levels of a value that are worth storing: readers of JSON give up soon after."""

_MAX_ARRAY_ITEMS = 100_000


@dataclass(frozen=True)
class ReturnedValue:
    """The JSON of a return value, None if there is none; and a warning about it."""

    text: str | None = None
    warning: str | None = None


class UnfinishedError(TypeError):
    """A function returned something whose body has not run: the step has done nothing yet."""


def returned_value(value: Any) -> ReturnedValue:
    """A return value as JSON. `UnfinishedError` for a coroutine or generator, whose code was never executed."""
    _refuse_unfinished(value)
    as_text: dict[str, None] = {}
    try:
        text = json.dumps(_plain(value, as_text, 0), indent=2, allow_nan=False)
    except Exception as error:  # Code of the value itself ran, and may raise anything.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        return ReturnedValue(warning=f"the return value is not JSON ({reason}); none of it was saved")
    if not as_text:
        return ReturnedValue(text)
    kinds = ", ".join(list(as_text)[:3])
    return ReturnedValue(text, f"the return value is not JSON ({kinds}); the text of that was saved instead")


def _refuse_unfinished(value: Any) -> None:
    kind = None
    if inspect.iscoroutine(value):
        kind = "a coroutine"
        value.close()  # Otherwise Python would complain again that it was never awaited.
    elif inspect.isasyncgen(value):
        kind = "an async generator"
    elif inspect.isgenerator(value) and value.gi_code.co_name != "<genexpr>":
        kind = "a generator"
    if kind is not None:
        raise UnfinishedError(
            f"the function returned {kind}, whose body has not run. A step's function does its work before it returns:"
            " call asyncio.run(...) for async code, and write results instead of yielding them"
        )


def _plain(value: Any, as_text: dict[str, None], depth: int) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _not_finite(value)
    if depth >= MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, os.PathLike):
        return os.fspath(value) if isinstance(os.fspath(value), str) else str(value)
    if hasattr(type(value), "model_dump_json"):
        return _plain(json.loads(value.model_dump_json()), as_text, depth + 1)
    names = field_names(type(value))
    if names is not None:
        return {name: _plain(getattr(value, name), as_text, depth + 1) for name in names}
    if isinstance(value, Mapping):
        return {_key(key): _plain(item, as_text, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, as_text, depth + 1) for item in value]
    if isinstance(value, set | frozenset):
        as_text[type(value).__name__] = None
        return [_plain(item, as_text, depth + 1) for item in value]
    array = _array(value)
    if array is not None:
        return _plain(array, as_text, depth + 1)
    as_text[type(value).__qualname__] = None
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return function_name(value)
    return str(value)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _key(key: Any) -> str:
    """As JSON has it; for other keys their text."""
    key = key.value if isinstance(key, Enum) else key
    number = _array(key)
    key = key if number is None else number
    if isinstance(key, bool) or key is None:
        return json.dumps(key)
    return key if isinstance(key, str) else str(key)


def _array(value: Any) -> Any:
    """The numbers of an array or of a scalar that is like one (of numpy, jax, torch); None for anything else."""
    shape, to_list = getattr(value, "shape", None), getattr(value, "tolist", None)
    if isinstance(value, type) or not isinstance(shape, tuple) or not callable(to_list):
        return None
    if math.prod(shape) > _MAX_ARRAY_ITEMS:
        return None
    listed = to_list()
    return listed if isinstance(listed, list | str | int | float) else None
