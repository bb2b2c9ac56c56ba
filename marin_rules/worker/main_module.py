"""`__main__` in the process of a step: the experiment file, as far as its steps need it.

What is defined in the experiment file belongs to the module `__main__` and is packed by value. Code that sends it on to
other processes (`multiprocessing`, `concurrent.futures`) pickles it by name, and must find it there. Forked children
find it in this module. Children that are spawned execute the experiment file itself, as they would for a plain script;
`executor_main` does nothing in them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

from marin_rules.functions import OnOutputPath
from marin_rules.plans.frozen import FrozenPlan

_NAME = "__main__"
_NAME_IN_SPAWNED_CHILDREN = "__mp_main__"
"""Classes of the experiment file come back from spawned children under this name."""


class _MainModule(ModuleType):
    """Shows the globals that functions of the experiment file share, as they are at the moment."""

    def __init__(self, path: str | None, names: Mapping[str, Any], definitions: Mapping[str, Any]) -> None:
        super().__init__(_NAME)
        if path is not None:
            self.__file__ = path  # What spawned children execute.
        self._names = names
        self._definitions = definitions

    def __getattr__(self, name: str) -> Any:
        for found in (self.__dict__["_names"], self.__dict__["_definitions"]):
            if name in found:
                return found[name]
        raise AttributeError(f"module {_NAME!r} has no attribute {name!r}: this step does not use it")


def install_main_module(plan: FrozenPlan, fn: Callable[..., Any]) -> None:
    """Let the names of the experiment file be found in `__main__`; a step that uses none gets an empty one."""
    definitions = {thing.__qualname__: thing for thing in plan.unpacked_definitions if thing.__module__ == _NAME}
    functions = [*_functions_within(fn), *(thing for thing in definitions.values() if isinstance(thing, FunctionType))]
    names = next((function.__globals__ for function in functions if _is_of_main(function)), {})
    path = os.path.join(plan.run.working_directory, plan.run.caller_path)
    has_file = bool(names or definitions) and os.path.isfile(path)
    module = _MainModule(path if has_file else None, names, definitions)
    sys.modules[_NAME] = sys.modules[_NAME_IN_SPAWNED_CHILDREN] = module


def _is_of_main(function: FunctionType) -> bool:
    """Whether its globals are those of the experiment file. `functools.wraps` gives others its `__module__` alone."""
    return function.__module__ == _NAME and function.__globals__.get("__name__", _NAME) == _NAME


def _functions_within(fn: Any) -> list[FunctionType]:
    """A step's function and those that it is made of: what partials hold, what decorators wrap."""
    found: list[FunctionType] = []
    pending, seen = [fn], set()
    while pending:
        thing = pending.pop(0)
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, functools.partial):
            pending.append(thing.func)
        elif isinstance(thing, OnOutputPath):
            pending.append(thing.fn)
        elif isinstance(thing, MethodType):
            pending.append(thing.__func__)
        elif isinstance(thing, FunctionType):
            found.append(thing)
            for cell in thing.__closure__ or ():
                with contextlib.suppress(ValueError):  # An empty cell.
                    if callable(cell.cell_contents):
                        pending.append(cell.cell_contents)
        elif callable(thing) and isinstance(type(thing).__call__, FunctionType):
            pending.append(type(thing).__call__)
    return found
