"""Steps and placeholders in places where planning does not replace them, so that their dependency is lost.

`f"{step}/x"` makes plain text of a step; a partial, a closure, an iterator or an object of a plain class hides it from
the walk through the config. The text of a step carries a mark that is found in strings; the rest is searched for, a few
levels deep and a few thousand values wide, since an innocent config may hold a tokenizer or a model.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections import deque
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from pathlib import PurePath
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

from marin_rules.errors import PlanError
from marin_rules.placeholders import MARK, InputName, MirroredValue, OutputName, VersionedValue
from marin_rules.remote import RemoteCallable
from marin_rules.steps import ExecutorStep

_PLACEHOLDERS = (ExecutorStep, InputName, OutputName, VersionedValue, MirroredValue)
_NEVER_ENTERED = (int, float, complex, bytes, bytearray, memoryview, type, ModuleType, range, type(None))
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_VIEWS = (KeysView, ValuesView, ItemsView)

_MAX_DEPTH = 6
_MAX_VALUES = 2_000
_MAX_ITEMS = 500
"""How far a value is searched: what people hide by mistake is near the surface."""

_PACKAGES_WITHOUT_STEPS = frozenset(
    ("numpy", "pandas", "torch", "jax", "jaxlib", "tensorflow", "pyarrow", "polars", "transformers")
)
"""Packages whose objects are large and hold no steps."""

_KIND = re.compile(re.escape(MARK) + r"(\w+)")


def swallowed_text(text: str) -> str:
    """The message about a text that was made from a step or placeholder."""
    matched = _KIND.search(text)
    kind = matched[1] if matched else "step"
    shown = text if len(text) <= 120 else f"{text[:120]}..."
    return f"the text {shown!r} {_ADVICE.get(kind, _OF_A_STEP)}."


_OF_A_STEP = (
    "was made from a step by an f-string or str(), so the path is lost and with it the dependency. Write step / 'file'"
    " for a path below the step, and join anything else inside the function"
)
_ADVICE = {
    "step": _OF_A_STEP,
    "path": _OF_A_STEP,
    "output": (
        "was made from this_output_path() by an f-string or str(), so the path is lost. Write"
        " this_output_path('file') for a path below it"
    ),
    "versioned": (
        "was made from a versioned value by an f-string or str(), so the value is lost. Format the value first:"
        " versioned(f'...')"
    ),
    "mirrored": (
        "was made from a mirrored path by an f-string or str(), so the path is lost. Build the path first:"
        " mirrored(f'...')"
    ),
}


class Search:
    """Searches the functions and configs of one plan for what was swallowed; each object once."""

    def __init__(self) -> None:
        self._innocent: dict[int, Any] = {}
        """By id, and kept, so that no other object gets the id."""

    def check_function(self, fn: Any, where: str) -> None:
        """Refuse a step's function that carries a step or placeholder along."""
        if isinstance(fn, RemoteCallable):
            for name, value in fn.env_vars.items():
                if MARK in value:
                    raise PlanError(
                        f"{where}: env_vars[{name!r}] was made from a step or placeholder by an f-string or str()."
                        " Only a config can refer to steps: put the path there."
                    )
            fn = fn.fn
        self.check_value(fn, f"{where}, fn")

    def check_value(self, value: Any, where: str) -> None:
        """Refuse a value that planning keeps as it is although it holds a step or placeholder."""
        if isinstance(value, str):
            if MARK in value:
                raise PlanError(f"{where}: {swallowed_text(value)}")
            return
        if isinstance(value, _NEVER_ENTERED) or id(value) in self._innocent:
            return
        found = _find(value)
        if found is None:
            self._innocent[id(value)] = value
            return
        path, hidden = found
        if isinstance(hidden, str):
            raise PlanError(f"{where}{f', {path}' if path else ''}: {swallowed_text(hidden)}")
        kept_in = _owner(value)
        raise PlanError(
            f"{where}: {hidden!r} is inside {kept_in} ({path}), where it is neither found nor replaced by its"
            f" {'value' if isinstance(hidden, VersionedValue) else 'path'}. Put it into the step's config, in a"
            " dataclass, dict, list or tuple, and pass it on from there inside the function."
        )


def _owner(value: Any) -> str:
    if isinstance(value, functools.partial):
        return "a functools.partial"
    if isinstance(value, FunctionType):
        return f"the function {value.__qualname__}"
    if isinstance(value, MethodType):
        return f"the object of the method {value.__qualname__}"
    return f"an object of the class {type(value).__qualname__}"


def _find(root: Any) -> tuple[str, Any] | None:
    """The first step or placeholder inside `root`, or marked text, and the way to it."""
    seen: dict[int, Any] = {}
    pending: deque[tuple[str, Any, int]] = deque([("", root, 0)])
    while pending and len(seen) < _MAX_VALUES:
        path, value, depth = pending.popleft()
        if isinstance(value, str):
            if MARK in value:
                return path, value
            continue
        if isinstance(value, _PLACEHOLDERS) and depth:
            return path.removeprefix("."), value
        if isinstance(value, _NEVER_ENTERED) or id(value) in seen or depth > _MAX_DEPTH:
            continue
        seen[id(value)] = value
        pending.extend((f"{path}{way}", item, depth + 1) for way, item in _inside(value))
    return None


def _inside(value: Any) -> Iterable[tuple[str, Any]]:
    """What a value holds, found without running any code of it."""
    if isinstance(value, functools.partial):
        arguments = [(f".args[{position}]", item) for position, item in enumerate(value.args)]
        keywords = [(f".keywords[{name!r}]", item) for name, item in value.keywords.items()]
        return [*arguments, *keywords, (".func", value.func)]
    if isinstance(value, MethodType):
        return [(".__self__", value.__self__), (".__func__", value.__func__)]
    if isinstance(value, FunctionType):
        return _inside_function(value)
    if isinstance(value, RemoteCallable):
        return [(".fn", value.fn)]
    if isinstance(value, PurePath):
        return [("", str(value))]
    if isinstance(value, Mapping) and type(value).__module__ in ("builtins", "collections", "types"):
        return [(f"[{key!r}]", item) for key, item in itertools.islice(value.items(), _MAX_ITEMS)]
    is_of_python = type(value).__module__ in ("builtins", "itertools")
    if isinstance(value, _CONTAINERS) or (is_of_python and isinstance(value, _VIEWS)):
        return [(f"[{position}]", item) for position, item in enumerate(itertools.islice(value, _MAX_ITEMS))]
    if is_of_python and isinstance(value, Iterator):
        return _inside_iterator(value)
    if type(value).__module__.partition(".")[0] in _PACKAGES_WITHOUT_STEPS:
        return []
    if hasattr(type(value), "as_executor_step"):
        return []  # A StepSpec knows its path already, and names its dependencies itself.
    return [(f".{name}", item) for name, item in itertools.islice(_attributes(value), _MAX_ITEMS)]


def _inside_function(fn: FunctionType) -> list[tuple[str, Any]]:
    parameters = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    defaults = fn.__defaults__ or ()
    found = [
        (f", default of {name!r}", item) for name, item in zip(parameters[-len(defaults) :], defaults, strict=False)
    ]
    found += [(f", default of {name!r}", item) for name, item in (fn.__kwdefaults__ or {}).items()]
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False):
        try:
            found.append((f", its variable {name!r}", cell.cell_contents))
        except ValueError:
            continue  # Not set yet.
    return [(way.removeprefix(", "), item) for way, item in found]


def _inside_iterator(value: Iterator[Any]) -> list[tuple[str, Any]]:
    """What an iterator of Python's own was made of, obtained as `pickle` does: none of it is consumed."""
    try:
        parts = value.__reduce__()[1:]
    except TypeError:  # For a generator, which cannot be sent to a step anyway.
        return []
    return [("", item) for part in parts if isinstance(part, tuple) for item in part]


def _attributes(value: Any) -> Iterable[tuple[str, Any]]:
    """Attributes as they are stored: properties are not called."""
    with contextlib.suppress(AttributeError, TypeError):
        yield from dict(object.__getattribute__(value, "__dict__")).items()
    for cls in type(value).__mro__:
        if "__slots__" in cls.__dict__:
            for name, descriptor in list(cls.__dict__.items()):
                if isinstance(descriptor, MemberDescriptorType):
                    with contextlib.suppress(AttributeError):  # Not set.
                        yield name, descriptor.__get__(value)
