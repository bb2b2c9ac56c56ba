"""Walking configs: find the placeholders in one and replace them with values.

A config is walked depth first through dataclasses (in field order), dicts (in insertion order), lists, tuples
and sets. The dotted path to a placeholder is part of the step's identity, so the order and the spelling of
these paths never change. A part of a config without placeholders is returned as the same object.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple, cast
from urllib.parse import urlparse

from marin_rules.placeholders import MARK, InputName, MirroredValue, OutputName, VersionedValue
from marin_rules.steps import ExecutorStep, get_executor_step

MIRROR_SCHEME = "mirror://"

_MAX_PREFIX = 100_000
"""No dotted path of a sane config is longer."""

_SCALARS = (str, int, float, type(None))
_SEQUENCES = (list, tuple)
_SETS = (set, frozenset)
_CONTAINERS = (dict, *_SEQUENCES, *_SETS)


class InputNameEvent(NamedTuple):
    """A reference to another step (or a hard-coded path) at `prefix`."""

    prefix: str
    input_name: InputName


class VersionedEvent(NamedTuple):
    """A versioned value at `prefix`."""

    prefix: str
    value: Any


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a config contributes to the identity of its step."""

    dependencies: list[ExecutorStep[Any]]
    """Steps that must be done first, in order of mention, repeats included."""

    pseudo_dependencies: list[ExecutorStep[Any]]
    """Steps that only count in the version."""

    version: dict[str, Any]
    """Dotted path -> versioned value, or `DEP[i]` with i counted over both lists together."""

    references: list[tuple[str, InputName]]
    """Dotted path and reference, for all paths that are named: below a step, or hard-coded."""

    versioned: list[tuple[str, Any]]
    """Dotted path and value, for all versioned values that are more than a scalar."""

    leaves: list[tuple[str, Any]] = field(default_factory=list)
    """Dotted path and value, for everything that is kept as it is and could hide a reference: objects that are not
    walked through, StepSpecs, and strings made from a reference."""


def walk_config(config: Any) -> Iterator[InputNameEvent | VersionedEvent]:
    """Yield each reference and each versioned value in `config`, with its dotted path."""
    return _walk(config, [])


def _walk(config: Any, leaves: list[tuple[str, Any]]) -> Iterator[InputNameEvent | VersionedEvent]:
    """`walk_config`, which adds the leaves it passes to `leaves`."""
    pending: list[tuple[str, Any]] = [("", config)]
    while pending:
        prefix, value = pending.pop()
        if len(prefix) > _MAX_PREFIX:
            raise ValueError(f"the config holds itself, or is nested too deep: {prefix[:60]}...")
        if isinstance(value, _SCALARS):
            if type(value) is str and MARK in value:
                leaves.append((prefix, value))
            continue
        if isinstance(value, InputName):
            yield InputNameEvent(prefix, value)
        elif isinstance(value, ExecutorStep):
            yield InputNameEvent(prefix, value.as_input_name())
        elif isinstance(value, VersionedValue):
            yield VersionedEvent(prefix, value.value)
        elif isinstance(value, MirroredValue):
            pending.append((prefix, value.value))
        elif is_spec(value):
            leaves.append((prefix, value))
        elif inner := children(prefix, value):
            pending.extend(reversed(inner))
        elif not isinstance(value, _CONTAINERS):
            leaves.append((prefix, value))


def children(prefix: str, value: Any) -> list[tuple[str, Any]]:
    """What a dataclass, dict, list, tuple or set holds, with dotted paths; nothing for any other value."""
    below = prefix + "." if prefix else ""
    names = field_names(type(value))
    if names is not None:
        if is_of_marin(type(value)):  # A step or placeholder, and not known as one.
            raise ValueError(f"{prefix or 'the config'} is {marins_own(type(value))}")
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


def is_spec(value: Any) -> bool:
    """Whether a value is a StepSpec: plain data to a config, and without placeholders, which have no JSON."""
    return hasattr(type(value), "as_executor_step")  # Looked up on its class: a value may define attributes of its own.


_MARINS_NAMES = frozenset({"ExecutorStep", "InputName", "MirroredValue", "OutputName", "StepSpec", "VersionedValue"})


def is_of_marin(cls: type) -> bool:
    """Whether a class is a step or placeholder of Marin's own package, which would be mistaken for plain data."""
    return cls.__name__ in _MARINS_NAMES and cls.__module__.startswith("marin.")


def marins_own(cls: type) -> str:
    """The message about an object of such a class."""
    return (
        f"Marin's own {cls.__name__}, made by one of its modules. Run the script with `python -m marin_rules.compat`,"
        " or with compat=true under Snakemake: those modules then use the steps and placeholders of marin_rules"
    )


_field_names: dict[type, tuple[str, ...] | None] = {}
"""Kept answers of `field_names`, which depend on the class alone."""


def field_names(cls: type) -> tuple[str, ...] | None:
    """The field names of a dataclass, None for any other class."""
    try:
        return _field_names[cls]
    except KeyError:
        names = _field_names[cls] = tuple(item.name for item in fields(cls)) if is_dataclass(cls) else None
        return names


def collect_dependencies_and_version(obj: Any) -> Dependencies:
    """Gather the steps that a config refers to and the values that are part of its version."""
    found = Dependencies([], [], {}, [], [])
    for event in _walk(obj, found.leaves):
        path = event.prefix
        if isinstance(event, VersionedEvent):
            found.version[path] = event.value
            if not isinstance(event.value, _SCALARS):
                found.versioned.append((path, event.value))
            elif type(event.value) is str and MARK in event.value:
                found.leaves.append((path, event.value))
            continue
        reference = event.input_name
        if reference.name is not None:
            found.references.append((path, reference))
        if reference.step is None:
            found.version[path] = reference.name
            continue
        index = len(found.dependencies) + len(found.pseudo_dependencies)
        steps = found.dependencies if reference.block_on_step else found.pseudo_dependencies
        steps.append(get_executor_step(reference))
        found.version[path] = f"DEP[{index}]/{reference.name}" if reference.name else f"DEP[{index}]"
    return found


def upstream_steps(obj: Any) -> list[ExecutorStep[Any]]:
    """The steps that `obj` itself refers to, each once, in the order of their mention."""
    steps: dict[ExecutorStep[Any], None] = {}
    for event in walk_config(obj):
        if isinstance(event, InputNameEvent) and event.input_name.step is not None:
            steps[get_executor_step(event.input_name)] = None
    return list(steps)


class _Resolver:
    """Replaces placeholders with paths and values, and notes the largest mirror budget on the way."""

    def __init__(
        self, output_path: str | None, output_paths: Mapping[ExecutorStep[Any], str], prefix: str, thorough: bool
    ) -> None:
        self.output_path = output_path
        self.output_paths = output_paths
        self.prefix = prefix
        self.thorough = thorough
        self.mirror_budget_gb: float | None = None

    def __call__(self, value: Any) -> Any:
        if isinstance(value, ExecutorStep):
            return self.output_paths[value]
        if isinstance(value, InputName):
            if value.step is None:
                return below_prefix(self.prefix, cast(str, value.name))
            return join(self.output_paths[value.step], value.name)
        if isinstance(value, OutputName):
            if self.output_path is None:
                raise ValueError(
                    f"this_output_path({value.name!r}) cannot be resolved: the config has no output_path, "
                    "pass output_path=..."
                )
            if self.thorough and value.name and climbs(value.name):
                raise ValueError(f"this_output_path({value.name!r}) is not below the step's output path")
            return join(self.output_path, value.name)
        if isinstance(value, VersionedValue):
            return _rebuild(value.value, self, into_sets=True) if self.thorough else value.value
        assert isinstance(value, MirroredValue)
        self.mirror_budget_gb = max(value.budget_gb, self.mirror_budget_gb or 0)
        path = _rebuild(value.value, self, into_sets=self.thorough)
        return MIRROR_SCHEME + path if isinstance(path, str) and not path.startswith(MIRROR_SCHEME) else path


def instantiate_config[ConfigT](
    config: ConfigT, output_path: str | None, output_paths: Mapping[ExecutorStep[Any], str], prefix: str
) -> ConfigT:
    """Put real paths and values in place of the placeholders of `config`.

    As in Marin, placeholders in sets and inside versioned values are left as they are.
    """
    return cast(ConfigT, _rebuild(config, _Resolver(output_path, output_paths, prefix, thorough=False)))


def resolve_config[ConfigT](
    config: ConfigT, output_path: str | None, output_paths: Mapping[ExecutorStep[Any], str], prefix: str
) -> tuple[ConfigT, float | None]:
    """`instantiate_config` for a run: every placeholder is resolved. Also returns the largest mirror budget."""
    resolver = _Resolver(output_path, output_paths, prefix, thorough=True)
    return cast(ConfigT, _rebuild(config, resolver, into_sets=True)), resolver.mirror_budget_gb


def resolve_local_placeholders[ConfigT](config: ConfigT, output_path: str) -> ConfigT:
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
    if is_spec(value):
        return value
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
        if all(map(operator.is_, items, value)):
            return value
        if isinstance(value, _SETS) and len(value) > 1 and any(True for _ in walk_config(value)):
            raise ValueError(
                "a set has no stable order, so the references or versioned values in it would give a different path in"
                " every run. Use a list."
            )
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*items)
        return next(kind for kind in (list, tuple, set, frozenset) if isinstance(value, kind))(items)
    return value


def join(path: str, name: str | None) -> str:
    """`name` below `path`, as `os.path.join` does it; `path` itself for an empty name."""
    if not name:
        return path
    # Two times quicker in the common case, and there are several of these in each step.
    return f"{path}/{name}" if path and path[-1] != "/" and name[0] != "/" else os.path.join(path, name)


def is_relative(path: str) -> bool:
    """Whether a path is meant below a prefix: it is neither absolute nor a URL."""
    return not urlparse(path).scheme and not path.startswith("/")


def below_prefix(prefix: str, path: str) -> str:
    """A relative path joined to the prefix; an absolute path or a URL as it is."""
    return os.path.join(prefix, path) if is_relative(path) else path


def climbs(path: str) -> bool:
    """Whether a path could lead out of the folder it is joined to."""
    return path.startswith("/") or (".." in path and ".." in path.split("/"))
