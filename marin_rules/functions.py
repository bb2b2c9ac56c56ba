"""The functions of steps: what they are called, and whether one can be called with a config alone."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from marin_rules.errors import PlanError
from marin_rules.handwritten import SnakemakeRule
from marin_rules.remote import RemoteCallable

_LAZY = (
    (
        inspect.iscoroutinefunction,
        "is an async function, which only runs in an event loop: the step would be done without it. Use a plain"
        " function that calls asyncio.run(...)",
    ),
    (
        inspect.isasyncgenfunction,
        "is an async generator function, whose body runs only while it is iterated over: the step would be done"
        " without it. Use a plain function that writes its results, with asyncio.run(...) around what is async",
    ),
    (
        inspect.isgeneratorfunction,
        "is a generator function, whose body runs only while it is iterated over: the step would be done without it."
        " Use a plain function that writes its results instead of yielding them",
    ),
)


@dataclass(frozen=True)
class OnOutputPath:
    """The function of a StepSpec, which takes the output path, where a step calls its function with its config."""

    fn: Callable[[str], Any]

    def __call__(self, config: Any) -> Any:
        return self.fn(config.output_path)


NO_FUNCTION = "None"
"""The name shown for the function of a step that has none: its data already exists, or somebody else makes it."""


def no_function(config: Any) -> None:
    """Stands in for a function that a step does not have, in case it is called after all."""
    raise RuntimeError("the step has no function to run, and whoever ran it elsewhere did not finish it")


def function_name(fn: Any) -> str:
    """The importable name of a step's function, as people write it."""
    if isinstance(fn, SnakemakeRule):
        return f"rule {fn.name}"
    if fn is None:
        return NO_FUNCTION
    target = _unwrapped(fn)
    name = getattr(target, "__qualname__", None) or type(target).__qualname__
    module = getattr(target, "__module__", None)
    return f"{module}.{name}" if module else name


def check_function(fn: Any, where: str) -> None:
    """Refuse a function that a step cannot call, or whose body a call would not run. `where` names the step."""
    takes_path = isinstance(_unmarked(fn), OnOutputPath)
    fn = _unwrapped(fn)
    if not callable(fn):
        raise PlanError(f"{where}: fn is a {type(fn).__name__}, not a function")
    called = _called(fn)
    for is_lazy, trouble in _LAZY:
        if is_lazy(called):
            raise PlanError(f"{where}: {function_name(fn)} {trouble}.")
    try:
        # What a decorator says about the function it wraps is irrelevant: the wrapper is what is called.
        signature = inspect.signature(fn, follow_wrapped=False)
    except (TypeError, ValueError):
        return  # Some functions written in C have no signature.
    try:
        signature.bind(None)
    except TypeError as error:
        what, example = ("output path", "output_path") if takes_path else ("config", "config")
        raise PlanError(
            f"{where}: {function_name(fn)}{_shown(signature)} cannot be called with the {what} alone ({error}). A"
            f" step's function takes one argument, as in `def f({example}):`."
        ) from None


def _unmarked(fn: Any) -> Any:
    return fn.fn if isinstance(fn, RemoteCallable) else fn


def _unwrapped(fn: Any) -> Any:
    """The function that its author wrote, behind marks of ours."""
    marked = _unmarked(fn)
    return marked.fn if isinstance(marked, OnOutputPath) else marked


def mark_in_partial(fn: Any) -> RemoteCallable[..., Any] | None:
    """The remote function inside a partial, if there is one: the partial only calls it, so no step asks for its
    machines."""
    fn = _unwrapped(fn)
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn if isinstance(fn, RemoteCallable) else None


def _called(fn: Any) -> Any:
    """The function whose body runs in the end, behind marks, partials, caches and objects that can be called."""
    while True:
        if isinstance(fn, RemoteCallable):
            fn = fn.fn
        elif isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, functools._lru_cache_wrapper):
            fn = fn.__wrapped__
        elif inspect.isroutine(fn) or isinstance(fn, type):
            return fn
        else:
            return type(fn).__call__


def _shown(signature: inspect.Signature) -> str:
    """The parameters by name; their defaults may be long or private."""
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    try:
        return str(inspect.Signature(bare))
    except ValueError:
        return ""
