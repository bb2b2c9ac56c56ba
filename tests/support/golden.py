"""Graphs of steps written in JSON: how to build one with this package, and all that can be seen of it afterwards.

A config is written so that no type is lost. Scalars and lists stand for themselves; anything else is an object with one
key that names its form (`{"$tuple": [1, 2]}`, `{"$versioned": 3}`, `{"$step": "id of a step"}`): see `_FORMS`.
What is seen of a graph is JSON again, in the forms of `_canonical`, so that `==` compares types as well as values.
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from marin_rules import (
    Executor,
    ExecutorStep,
    InputName,
    MirroredValue,
    OutputName,
    StepSpec,
    VersionedValue,
    compute_output_path,
    mirrored,
    output_path_of,
    this_output_path,
    versioned,
)

Json = Any
Step = ExecutorStep[Any]

# Beyond it, a reader of JSON that has only doubles would lose digits.
_LARGEST_EXACT_INTEGER = 2**53 - 1

_MAKE_ENUM: Mapping[str | None, Callable[[str, dict[str, Any]], Any]] = {
    None: lambda name, members: enum.Enum(name, members),
    "int": lambda name, members: enum.IntEnum(name, members),
    "strenum": lambda name, members: enum.StrEnum(name, members),
    # Not the same as StrEnum: str() of its members is `Class.MEMBER`.
    "str": lambda name, members: enum.Enum(name, members, type=str),
}


class NoJaxError(Exception):
    """The graph holds a type of jax, which is not installed here."""


def observe(graph: Mapping[str, Json]) -> Json:
    """Identify all steps of a graph: paths, versions, dependencies, resolved configs, order.

    Raises whatever the package raises, and NoJaxError when the graph cannot be built here.
    """
    if graph["kind"] == "stepspec":
        return _observe_specs(graph)
    steps = _Reader().read_steps(graph["steps"])
    roots = {name: steps[name] for name in graph["roots"]}

    executor = Executor(prefix=graph["prefix"], executor_info_base_path="/nonexistent/info")
    for root in roots.values():
        executor.compute_version(root, is_pseudo_dep=False)
    names = {step: name for name, step in steps.items()}
    return {
        "steps": {
            name: {
                "output_path": executor.output_paths[step],
                "version": executor.version_strs[step],
                "deps": [executor.output_paths[dependency] for dependency in executor.dependencies[step]],
                "config": _canonical(executor.configs[step]),
                "pseudo": executor.is_pseudo_dep[step],
            }
            for name, step in steps.items()
            if step in executor.output_paths
        },
        "order": [names[step] for step in executor.steps],
        "compute_output_path": {
            name: compute_output_path(
                root.name, root.config, override_output_path=root.override_output_path, prefix=graph["prefix"]
            )
            for name, root in roots.items()
        },
    }


def _observe_specs(graph: Mapping[str, Json]) -> Json:
    """The same for StepSpecs: paths, hashes, dependencies; and the last of them as an ExecutorStep."""
    reader = _Reader()
    specs: dict[str, StepSpec] = {}
    for written in graph["specs"]:
        specs[written["id"]] = StepSpec(
            name=written["name"],
            output_path_prefix=graph["prefix"],
            hash_attrs=reader.value(written["attrs"]),
            deps=[specs[name] for name in written["deps"]],
            override_output_path=written.get("override"),
        )
    seen: dict[str, Json] = {
        "steps": {
            name: {"output_path": spec.output_path, "hash_id": spec.hash_id, "deps": spec.dep_paths}
            for name, spec in specs.items()
        }
    }
    if graph["as_executor"]:
        step = specs[graph["specs"][-1]["id"]].as_executor_step()
        executor = Executor(prefix=graph["prefix"], executor_info_base_path="/nonexistent/info")
        executor.compute_version(step, is_pseudo_dep=False)
        seen["executor_version"] = executor.version_strs[step]
        seen["executor_path"] = executor.output_paths[step]
    return seen


def _do_nothing(config: object) -> None:
    """The function of all steps; no path depends on it."""


class _Reader:
    """Builds the steps of one graph. Classes that are described alike are one class, as in a real experiment."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}
        self._classes: dict[tuple[object, ...], Any] = {}

    def read_steps(self, described: list[dict[str, Json]]) -> dict[str, Step]:
        """The steps by their ids; each refers only to steps before it."""
        for step in described:
            self._steps[step["id"]] = ExecutorStep(
                name=step["name"],
                fn=_do_nothing,
                config=self.value(step["config"]),
                override_output_path=step.get("override_output_path"),
                description=step.get("description"),
            )
        return self._steps

    def value(self, written: Json) -> Any:
        if isinstance(written, list):
            return self.values(written)
        if isinstance(written, dict):
            [(form, content)] = written.items()
            return _FORMS[form](self, content)
        return written

    def values(self, written: list[Json]) -> list[Any]:
        return [self.value(item) for item in written]

    def step(self, name: str) -> Step:
        return self._steps[name]

    def dataclass(self, written: Json) -> Any:
        fields = {name: self.value(value) for name, value in written["fields"]}
        frozen = written.get("frozen", True)
        made = self._class(
            ("dataclass", written["cls"], frozen, *fields),
            lambda: dataclasses.make_dataclass(written["cls"], [(name, Any) for name in fields], frozen=frozen),
        )
        return made(**fields)

    def named_tuple(self, written: Json) -> Any:
        fields = {name: self.value(value) for name, value in written["fields"]}
        made = self._class(
            ("named tuple", written["cls"], *fields), lambda: collections.namedtuple(written["cls"], list(fields))
        )
        return made(**fields)

    def enum_member(self, written: Json) -> Any:
        value, base, member = self.value(written["value"]), written.get("base"), written["member"]
        made = self._class(
            ("enum", written["cls"], base, member, repr(value)),
            lambda: _MAKE_ENUM[base](written["cls"], {member: value}),
        )
        return made[member]

    def _class(self, described: tuple[object, ...], make: Callable[[], Any]) -> Any:
        if described not in self._classes:
            self._classes[described] = make()
        return self._classes[described]


def _mirrored(read: _Reader, written: Json) -> Any:
    budget = {"budget_gb": written["budget_gb"]} if "budget_gb" in written else {}
    return mirrored(read.value(written["value"]), **budget)


def _numpy() -> Any:
    return importlib.import_module("numpy")


def _jax_type(read: _Reader, name: str) -> Any:
    try:
        return getattr(importlib.import_module("jax.numpy"), name)
    except ImportError as error:
        raise NoJaxError from error


_FORMS: Mapping[str, Callable[[_Reader, Json], Any]] = {
    # containers
    "$dict": lambda read, pairs: {read.value(key): read.value(value) for key, value in pairs},
    "$dc": _Reader.dataclass,
    "$nt": _Reader.named_tuple,
    "$tuple": lambda read, items: tuple(read.values(items)),
    "$set": lambda read, items: set(read.values(items)),
    "$frozenset": lambda read, items: frozenset(read.values(items)),
    # placeholders
    "$versioned": lambda read, value: versioned(read.value(value)),
    "$mirrored": _mirrored,
    "$step": lambda read, name: read.step(name),
    "$in": lambda read, it: InputName(step=read.step(it["step"]), name=it["name"]),
    "$of": lambda read, it: output_path_of(read.step(it["step"]), it["name"]),
    "$cd": lambda read, it: read.value(it["on"]).cd(it["name"]),
    "$div": lambda read, it: read.value(it["on"]) / it["name"],
    "$nonblocking": lambda read, reference: read.value(reference).nonblocking(),
    "$hardcoded": lambda read, path: InputName.hardcoded(path),
    "$this": lambda read, name: this_output_path() if name is None else this_output_path(name),
    # values
    "$int": lambda read, digits: int(digits),
    "$float": lambda read, digits: float(digits),
    "$complex": lambda read, parts: complex(*parts),
    "$decimal": lambda read, digits: decimal.Decimal(digits),
    "$fraction": lambda read, text: fractions.Fraction(text),
    "$bytes": lambda read, digits: bytes.fromhex(digits),
    "$range": lambda read, bounds: range(*bounds),
    "$path": lambda read, path: Path(path),
    "$purepath": lambda read, path: PurePosixPath(path),
    "$timedelta": lambda read, parts: datetime.timedelta(**parts),
    "$datetime": lambda read, text: datetime.datetime.fromisoformat(text),
    "$date": lambda read, text: datetime.date.fromisoformat(text),
    "$type": lambda read, name: getattr(builtins, name),
    "$enum": _Reader.enum_member,
    "$np": lambda read, it: getattr(_numpy(), it[0])(it[1]),
    "$npdtype": lambda read, name: _numpy().dtype(name),
    "$jaxdtype": _jax_type,
}


def _canonical(value: Any) -> Json:
    """A resolved config as JSON. A placeholder left in it shows as `$leftover`, a value of no form as `$other`."""
    if value is None or type(value) in (bool, str):
        return value
    if isinstance(value, enum.Enum):
        return {"$enum": [type(value).__name__, value.name]}
    if isinstance(value, str):
        return {"$str": str(value)}
    if type(value) is int:
        return value if abs(value) <= _LARGEST_EXACT_INTEGER else {"$int": str(value)}
    if type(value) is float:
        return {"$float": repr(value)}
    if isinstance(value, PurePath):
        return {"$path": str(value)}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if isinstance(value, tuple):
        items = [_canonical(item) for item in value]
        return {"$nt": [type(value).__name__, items]} if hasattr(value, "_fields") else {"$tuple": items}
    if isinstance(value, dict):
        return {"$dict": [[_canonical(key), _canonical(item)] for key, item in value.items()]}
    if isinstance(value, set | frozenset):
        return {f"${type(value).__name__}": sorted(map(_canonical, value), key=json.dumps)}
    if isinstance(value, ExecutorStep):
        return {"$leftover": ["ExecutorStep", value.name]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        form = "$leftover" if isinstance(value, InputName | OutputName | VersionedValue | MirroredValue) else "$dc"
        fields = {field.name: _canonical(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {form: [type(value).__name__, fields]}
    return {"$other": [type(value).__name__, str(value)]}
