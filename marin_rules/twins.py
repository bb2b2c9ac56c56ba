"""Steps that have one version although their configs differ: what the difference is, for a warning.

Only plain values can differ, since placeholders and versioned values are part of the version.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from marin_rules.configs import children
from marin_rules.placeholders import InputName, MirroredValue, VersionedValue
from marin_rules.remote import RemoteCallable
from marin_rules.steps import ExecutorStep

_MAX_FIELDS = 4
_MAX_VALUES = 4
_MAX_TEXT = 40
_MAX_LEAVES = 10_000

_SECRET_FIELD = re.compile(r"token$|secret|passw|credential|api_?key|private|auth", re.IGNORECASE)


def twins_warning(twins: Sequence[ExecutorStep[Any]], name_and_hash: str) -> str | None:
    """One sentence about steps of the same version whose configs differ; None if they are the same."""
    configs = [_leaves(step.config) for step in twins]
    fields = dict.fromkeys(field for config in configs for field in config)
    differing: dict[str, list[Any]] = {}
    for field in fields:
        values: list[Any] = []
        for config in configs:
            value = config.get(field, _ABSENT)
            if len(values) <= _MAX_VALUES and not any(_same(value, other) for other in values):
                values.append(value)
        if len(values) > 1:
            differing[field] = values
    if not differing:
        return None
    secrets = {value for step in twins for value in _secrets(step.fn)}
    shown = [_shown(field, differing[field], secrets) for field in list(differing)[:_MAX_FIELDS]]
    if len(differing) > _MAX_FIELDS:
        shown.append(f"and {len(differing) - _MAX_FIELDS} more")
    return (
        f"{len(twins)} steps named {twins[0].name!r} are one step, {name_and_hash}, although their configs differ in"
        f" {', '.join(shown)}: only the first runs, and the others get its output. If the difference matters, write"
        f" versioned(...) around the values, or give the steps different names"
    )


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT = _Absent()


def _leaves(config: Any) -> dict[str, Any]:
    """Dotted path -> plain value. What the version covers is left out."""
    found: dict[str, Any] = {}
    pending: list[tuple[str, Any]] = [("", config)]
    while pending and len(found) < _MAX_LEAVES:
        path, value = pending.pop()
        if isinstance(value, MirroredValue):
            pending.append((path, value.value))
        elif isinstance(value, ExecutorStep | InputName | VersionedValue):
            continue
        elif not isinstance(value, RemoteCallable) and (inner := children(path, value)):
            pending.extend(reversed(inner))
        else:
            found[path] = value
    return found


def _same(one: Any, two: Any) -> bool:
    """Whether two values are alike; in doubt they are, because after one false alarm nobody heeds a true one."""
    if one is two:
        return True
    if type(one) is not type(two):
        try:
            return bool(one == two)
        except Exception:
            return False
    if isinstance(one, FunctionType):
        return bool(one.__code__ == two.__code__)
    if isinstance(one, RemoteCallable):
        return _same(one.fn, two.fn)
    compare: Any = type(one).__eq__
    if compare is object.__eq__:
        return getattr(one, "__dict__", None) == getattr(two, "__dict__", None)
    try:
        return bool(one == two) or (one != one and two != two)  # NaN is unlike itself.
    except Exception:  # The comparison of two arrays is an array.
        return repr(one) == repr(two)


def _secrets(fn: Any) -> list[str]:
    return list(fn.env_vars.values()) if isinstance(fn, RemoteCallable) else []


def _shown(field: str, values: Sequence[Any], secrets: set[str]) -> str:
    name = field or "the config itself"
    if _SECRET_FIELD.search(field):
        return name
    texts = [_text(value, secrets) for value in values[:_MAX_VALUES]]
    if len(values) > _MAX_VALUES:
        texts.append("...")
    return f"{name} ({', '.join(texts)})"


def _text(value: Any, secrets: set[str]) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception:
        return f"a {type(value).__name__}"
    if any(secret and secret in text for secret in secrets):
        return "hidden"
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."
