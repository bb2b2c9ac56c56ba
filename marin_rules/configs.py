"""Walking configs: find the placeholders in one, and put values in their place.

A config is walked depth first through dataclasses (in field order), dicts (in insertion order), lists, tuples
and sets. The dotted path to a placeholder is part of the step's identity, so the order and the spelling of
these paths never change. A part of a config without placeholders is returned as the same object.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast
from urllib.parse import urlparse

from marin_rules.placeholders import InputName, MirroredValue, OutputName, VersionedValue
from marin_rules.steps import ExecutorStep

ConfigT = TypeVar("ConfigT")

MIRROR_SCHEME = "mirror://"

_SCALARS = (str, int, float, type(None))
_SEQUENCES = (list, tuple)
_SETS = (set, frozenset)


@dataclass(frozen=True, slots=True)
class InputNameEvent:
    """A reference to another step (or a hard-coded path) at `prefix`."""

    prefix: str
    input_name: InputName


@dataclass(frozen=True, slots=True)
class VersionedEvent:
    """A versioned value at `prefix`."""

    prefix: str
    value: Any


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a config contributes to the identity of its step."""

    dependencies: list[ExecutorStep[Any]]
    """Steps that must be done first, in the order of their mention, repeats included."""

    pseudo_dependencies: list[ExecutorStep[Any]]
    """Steps that only count in the version."""

    version: dict[str, Any]
    """Dotted path -> versioned value, or `DEP[i]` with i counted over both lists together."""


def walk_config(config: Any) -> Iterator[InputNameEvent | VersionedEvent]:
    """Yield each reference and each versioned value in `config`, with its dotted path."""
    pending: list[tuple[str, Any]] = [("", config)]
    while pending:
        prefix, value = pending.pop()
        if isinstance(value, _SCALARS):
            continue
        if isinstance(value, InputName):
            yield InputNameEvent(prefix, value)
        elif isinstance(value, ExecutorStep):
            yield InputNameEvent(prefix, value.as_input_name())
        elif isinstance(value, VersionedValue):
            yield VersionedEvent(prefix, value.value)
        elif isinstance(value, MirroredValue):
            pending.append((prefix, value.value))
        else:
            pending.extend(reversed(_children(prefix, value)))


def _children(prefix: str, value: Any) -> list[tuple[str, Any]]:
    below = prefix + "." if prefix else ""
    names = field_names(type(value))
    if names is not None:
        return [(below + name, getattr(value, name)) for name in names]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(
                    f"the keys of a dict in a config must be strings: {key!r} ({type(key).__name__})"
                    + (f" at {prefix}" if prefix else "")
                )
        return [(below + key, item) for key, item in value.items()]
    if isinstance(value, _SEQUENCES + _SETS):
        return [(f"{below}[{i}]", item) for i, item in enumerate(value)]
    return []


@cache
def field_names(cls: type) -> tuple[str, ...] | None:
    """The field names of a dataclass, None for any other class."""
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else None


def collect_dependencies_and_version(obj: Any) -> Dependencies:
    """Gather the steps that a config refers to and the values that are part of its version."""
    found = Dependencies([], [], {})
    for event in walk_config(obj):
        if isinstance(event, VersionedEvent):
            found.version[event.prefix] = event.value
            continue
        reference = event.input_name
        if reference.step is None:
            found.version[event.prefix] = reference.name
            continue
        index = len(found.dependencies) + len(found.pseudo_dependencies)
        steps = found.dependencies if reference.block_on_step else found.pseudo_dependencies
        steps.append(reference.step)
        found.version[event.prefix] = f"DEP[{index}]/{reference.name}" if reference.name else f"DEP[{index}]"
    return found


def upstream_steps(obj: Any) -> list[ExecutorStep[Any]]:
    """The steps that `obj` itself refers to, each once, in the order of their mention."""
    steps: dict[ExecutorStep[Any], None] = {}
    for event in walk_config(obj):
        if isinstance(event, InputNameEvent) and event.input_name.step is not None:
            steps[event.input_name.step] = None
    return list(steps)


def mirror_budget_gb(config: Any) -> float | None:
    """The largest budget among the mirrored values of a config, None when it has none."""
    budgets: list[float] = []

    def note(value: Any) -> Any:
        if isinstance(value, MirroredValue):
            budgets.append(value.budget_gb)
        return value

    _rebuild(config, note, into_sets=True)
    return max(budgets, default=None)


def instantiate_config(
    config: ConfigT,
    output_path: str | None,
    output_paths: Mapping[ExecutorStep[Any], str],
    prefix: str,
    *,
    thorough: bool = False,
) -> ConfigT:
    """Put real paths and values in place of the placeholders of `config`.

    As in Marin, placeholders in sets and inside versioned values are left as they are, unless `thorough`:
    a run resolves those too.
    """

    def resolve(value: Any) -> Any:
        if isinstance(value, ExecutorStep):
            return output_paths[value]
        if isinstance(value, InputName):
            if value.step is None:
                return below_prefix(prefix, cast(str, value.name))
            return join(output_paths[value.step], value.name)
        if isinstance(value, OutputName):
            if output_path is None:
                raise ValueError(
                    f"this_output_path({value.name!r}) cannot be resolved: the config has no output_path, "
                    "pass output_path=..."
                )
            return join(output_path, value.name)
        if isinstance(value, VersionedValue):
            return _rebuild(value.value, resolve, into_sets=True) if thorough else value.value
        if isinstance(value, MirroredValue):
            path = _rebuild(value.value, resolve, into_sets=thorough)
            return MIRROR_SCHEME + path if isinstance(path, str) and not path.startswith(MIRROR_SCHEME) else path
        return value

    return cast(ConfigT, _rebuild(config, resolve, into_sets=thorough))


def resolve_local_placeholders(config: ConfigT, output_path: str) -> ConfigT:
    """Resolve what needs no other step: own output paths and versioned values. The rest stays."""

    def resolve(value: Any) -> Any:
        if isinstance(value, OutputName):
            return join(output_path, value.name)
        if isinstance(value, VersionedValue):
            return _rebuild(value.value, resolve)
        if isinstance(value, MirroredValue):
            return replace(value, value=_rebuild(value.value, resolve))
        return value

    return cast(ConfigT, _rebuild(config, resolve))


def unwrap_versioned_value(value: Any) -> Any:
    """The plain value behind `versioned()`, at any depth; refuses what only a plan can resolve."""

    def unwrap(item: Any) -> Any:
        if isinstance(item, VersionedValue | MirroredValue):
            return _rebuild(item.value, unwrap)
        if isinstance(item, OutputName | InputName | ExecutorStep):
            raise ValueError(f"the value of {item!r} is known only once the step is planned")
        return item

    return _rebuild(value, unwrap)


_PLACEHOLDERS = (ExecutorStep, InputName, OutputName, VersionedValue, MirroredValue)


def _rebuild(value: Any, resolve: Callable[[Any], Any], *, into_sets: bool = False) -> Any:
    """`value` with `resolve` applied to each placeholder; untouched parts stay the same objects."""
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, _PLACEHOLDERS):
        return resolve(value)
    names = field_names(type(value))
    if names is not None:
        changed = {}
        for name in names:
            old = getattr(value, name)
            new = _rebuild(old, resolve, into_sets=into_sets)
            if new is not old:
                changed[name] = new
        return replace(value, **changed) if changed else value
    if isinstance(value, dict):
        new_dict = {key: _rebuild(item, resolve, into_sets=into_sets) for key, item in value.items()}
        return value if all(new_dict[key] is item for key, item in value.items()) else new_dict
    if isinstance(value, _SEQUENCES) or (into_sets and isinstance(value, _SETS)):
        items = [_rebuild(item, resolve, into_sets=into_sets) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*items)
        return next(kind for kind in (list, tuple, set, frozenset) if isinstance(value, kind))(items)
    return value


def join(path: str, name: str | None) -> str:
    """`name` below `path`; `path` itself for an empty name."""
    return os.path.join(path, name) if name else path


def below_prefix(prefix: str, path: str) -> str:
    """A relative path joined to the prefix; an absolute path or a URL as it is."""
    return path if urlparse(path).scheme or path.startswith("/") else os.path.join(prefix, path)
