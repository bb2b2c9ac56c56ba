"""Plain data turned back into what was written: dataclasses, and pydantic models in them.

The inverse of `returned_value`, by the annotations of a dataclass. What they do not describe stays plain data: an
annotation that names nothing at the time, `Any`, a class of another kind.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any, TypeAliasType, Union, cast, get_args, get_origin, get_type_hints

_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


def typed_value(value: Any, kind: Any) -> Any:
    """The value of type `kind` that was written as `value`; TypeError, ValueError or KeyError if it is not one."""
    while isinstance(kind, TypeAliasType):
        kind = kind.__value__
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return typed_value(value, arguments[0])
    if origin in (Union, types.UnionType):
        return _first_that_fits(value, arguments)
    if origin is not None and not is_dataclass(origin):
        return _collection(value, origin, arguments) if isinstance(origin, type) else value
    kind = origin or kind
    if not isinstance(kind, type):
        return value
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    if is_dataclass(kind):
        return _dataclass(value, kind)
    if issubclass(kind, Enum | PurePath) or (kind is float and value in _NOT_FINITE):
        return kind(value)
    return value


def _dataclass(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError(f"a {kind.__name__} is an object, not {value!r}")
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, TypeError, AttributeError):  # Of a class inside a function, or for type checkers only.
        hints = {}
    names = [item.name for item in fields(kind) if item.init and item.name in value]
    return cast(Any, kind)(**{name: typed_value(value[name], hints.get(name)) for name in names})


def _first_that_fits(value: Any, kinds: Iterable[Any]) -> Any:
    if value is None:
        return None
    for kind in kinds:
        if kind is types.NoneType or not _may_be(value, kind):
            continue
        try:
            return typed_value(value, kind)
        except (TypeError, ValueError, KeyError):
            continue
    return value


def _may_be(value: Any, kind: Any) -> bool:
    """Whether a value of that type may look like this: otherwise the first type of a union would match anything."""
    kind = get_origin(kind) or kind
    if not isinstance(kind, type):
        return True
    if isinstance(value, Mapping):
        return is_dataclass(kind) or hasattr(kind, "model_validate") or issubclass(kind, Mapping)
    if isinstance(value, list):
        return issubclass(kind, Iterable) and not issubclass(kind, str | Mapping)
    return isinstance(value, kind) or issubclass(kind, Enum | PurePath) or (kind is float and value in _NOT_FINITE)


def _collection(value: Any, kind: Any, arguments: tuple[Any, ...]) -> Any:
    if isinstance(value, Mapping) and issubclass(kind, Mapping) and len(arguments) == 2:
        return {_typed_key(key, arguments[0]): typed_value(item, arguments[1]) for key, item in value.items()}
    if not isinstance(value, list) or not arguments:
        return value
    if issubclass(kind, tuple) and arguments[-1] is not ...:
        return tuple(typed_value(item, argument) for item, argument in zip(value, arguments, strict=True))
    items = [typed_value(item, arguments[0]) for item in value]
    return kind(items) if kind in (tuple, set, frozenset) else items


def _typed_key(key: str, kind: Any) -> Any:
    """A key of type `kind`, which JSON stores only as text."""
    if kind is bool:
        return {"true": True, "false": False}[key]
    if not isinstance(kind, type):
        return key
    if issubclass(kind, Enum):
        return {str(member.value): member for member in kind}[key]
    return kind(key) if kind in (int, float) or issubclass(kind, PurePath) else key
