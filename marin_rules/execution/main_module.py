"""`__main__` in the process of a step: the experiment file, as far as its steps need it.

What is defined in the experiment file belongs to the module `__main__` and travels by value. Code that sends it on to
other processes (`multiprocessing`, `concurrent.futures`) pickles it by name, and must find it there. Forked children
find it in this module. Children that are spawned execute the experiment file itself, as they would for a plain script;
`executor_main` does nothing in them.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from marin_rules.execution.frozen import FrozenPlan

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
    functions = [thing for thing in (_function_of(fn), *definitions.values()) if isinstance(thing, FunctionType)]
    names = next((function.__globals__ for function in functions if function.__module__ == _NAME), {})
    path = os.path.join(plan.run.working_directory, plan.run.caller_path)
    has_file = bool(names or definitions) and os.path.isfile(path)
    module = _MainModule(path if has_file else None, names, definitions)
    sys.modules[_NAME] = sys.modules[_NAME_IN_SPAWNED_CHILDREN] = module


def _function_of(fn: Any) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "__func__", fn)
    return fn if isinstance(fn, FunctionType) else type(fn).__call__
