"""A step or placeholder where planning does not look is refused; whatever else a config holds is not."""

from __future__ import annotations

import functools
import logging
import re
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy
import pytest

from marin_rules import (
    THIS_OUTPUT_PATH,
    ExecutorStep,
    InputName,
    PlanError,
    RemoteCallable,
    mirrored,
    output_path_of,
    remote,
    swallowed,
    this_output_path,
    versioned,
)
from marin_rules.plan import make_plan


def run(config: Any, data: Any = None) -> None:
    """A step's function; never called here."""


Z = ExecutorStep("z", run, None)


class Plain:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def method(self, config: Any) -> None:
        """A bound method carries its object along."""

    def __call__(self, config: Any) -> None:
        """So does an object that can be called."""


class Slotted:
    __slots__ = ("inner", "unset")

    def __init__(self, inner: Any) -> None:
        self.inner = inner


def closing_over(value: Any) -> Callable[[Any], Any]:
    return lambda config: value


def with_default(value: Any) -> Callable[[Any], Any]:
    def fn(config: Any, data: Any = value) -> None:
        """Not called."""

    return fn


def message(step: ExecutorStep[Any]) -> str:
    with pytest.raises(PlanError) as caught:
        make_plan([step], prefix="/p")
    told = str(caught.value)
    assert "\n" not in told
    return told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{Z}/data.txt", "Write step / 'file'"),
        (str(Z), "Write step / 'file'"),
        ("%s" % Z, "Write step / 'file'"),  # noqa: UP031
        (f"{Z / 'data.txt'}", "Write step / 'file'"),
        (f"{output_path_of(Z).nonblocking()}.gz", "Write step / 'file'"),
        (f"{InputName.hardcoded('given')}/x", "Write step / 'file'"),
        (f"{THIS_OUTPUT_PATH}/x", "this_output_path('file')"),
        (f"{this_output_path('x')}.gz", "this_output_path('file')"),
        (f"{versioned(3)} layers", "versioned(f'...')"),
        (f"{mirrored('x')}/y", "mirrored(f'...')"),
        (repr([Z]), "Write step / 'file'"),
    ],
)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda text: text,
        lambda text: [(text,)],
        versioned,
        lambda text: versioned([text]),
        mirrored,
        lambda text: Z / text,
        InputName.hardcoded,
        Path,
    ],
)
def test_text_made_from_a_placeholder(text: str, told: str, wrap: Callable[[str], Any]) -> None:
    refusal = message(ExecutorStep("s", run, {"x": wrap(text)}))
    assert refusal.startswith("step 's', x")
    assert told in refusal or wrap is Path


def test_text_made_from_a_placeholder_outside_the_config() -> None:
    assert "name was made from a step" in message(ExecutorStep(f"eval-{Z}", run, None))
    moved = ExecutorStep("s", run, None, override_output_path=f"{Z}/x")
    assert "step 's': override_output_path: the text" in message(moved)
    told = message(ExecutorStep("s", remote(run, env_vars={"DATA": f"{Z}/x"}), None))
    assert "step 's': env_vars['DATA'] was made from a step" in told


@pytest.mark.parametrize(
    ("hide", "told"),
    [
        (lambda hidden: functools.partial(run, data=hidden), "a functools.partial (keywords['data'])"),
        (lambda hidden: functools.partial(run, hidden), "a functools.partial (args[0])"),
        (lambda hidden: functools.partial(run, data=[{"k": hidden}]), "(keywords['data'][0]['k'])"),
        (closing_over, "the function closing_over.<locals>.<lambda> (its variable 'value')"),
        (lambda hidden: closing_over({"k": hidden}), "(its variable 'value'['k'])"),
        (with_default, "the function with_default.<locals>.fn (default of 'data')"),
        (Plain, "an object of the class Plain (inner)"),
        (lambda hidden: Plain(Plain([hidden])), "(inner.inner[0])"),
        (Slotted, "an object of the class Slotted (inner)"),
        (lambda hidden: Plain(hidden).method, "the object of the method Plain.method (__self__.inner)"),
        (lambda hidden: SimpleNamespace(x=hidden), "an object of the class SimpleNamespace (x)"),
        (lambda hidden: MappingProxyType({"x": hidden}), "an object of the class mappingproxy (['x'])"),
        (lambda hidden: deque([hidden]), "an object of the class deque ([0])"),
        (lambda hidden: Plain(OrderedDict(x=hidden)), "(inner['x'])"),
        (lambda hidden: {"x": hidden}.values(), "an object of the class dict_values ([0])"),
        (lambda hidden: {"x": hidden}.items(), "an object of the class dict_items ([0][1])"),
        (lambda hidden: OrderedDict(x=hidden).values(), "an object of the class odict_values ([0])"),
        (lambda hidden: iter({"x": hidden}.values()), "an object of the class dict_valueiterator ([0])"),
        (lambda hidden: map(str, [hidden]), "an object of the class map ([0])"),
        (lambda hidden: zip([1], (hidden,), strict=True), "an object of the class zip ([0])"),
        (lambda hidden: reversed([hidden]), "an object of the class list_reverseiterator ([0])"),
        (lambda hidden: Plain(enumerate({hidden})), "an object of the class Plain (inner[0])"),
        (lambda hidden: functools.partial(Plain(hidden).method), "a functools.partial (func.__self__.inner)"),
    ],
)
@pytest.mark.parametrize(
    "hidden", [Z, Z / "x", output_path_of(Z), this_output_path("x"), versioned(3), mirrored("x")], ids=repr
)
def test_hidden_placeholders(hide: Callable[[Any], Any], told: str, hidden: Any) -> None:
    refusal = message(ExecutorStep("s", run, {"x": [hide(hidden)]}))
    assert refusal.startswith("step 's', x.[0]: <marin-rules ")
    assert told in refusal
    assert "Put it into the step's config" in refusal


@pytest.mark.parametrize(
    "fn",
    [
        functools.partial(run, data=Z),
        closing_over(Z),
        with_default(Z / "x"),
        Plain(Z),
        Plain(Z).method,
        remote(functools.partial(run, data=Z)),
        functools.lru_cache(closing_over(Z)),
    ],
)
def test_placeholders_hidden_in_the_function(fn: Any) -> None:
    refusal = message(ExecutorStep("s", fn, None))
    assert refusal.startswith("step 's', fn: <marin-rules ")


def test_text_hidden_in_an_object() -> None:
    refusal = message(ExecutorStep("s", run, {"x": Plain(f"{Z}/data.txt")}))
    assert "Write step / 'file'" in refusal


@dataclass(frozen=True)
class Config:
    source: Any = None
    output_path: str = THIS_OUTPUT_PATH


class Colour(Enum):
    RED = "red"


def in_a_circle() -> Plain:
    first = Plain(None)
    first.inner = Plain([first])
    return first


def large() -> Plain:
    numbers = list(range(1000))
    return Plain({str(i): Plain(numbers) for i in range(100_000)})


class Trap:
    """Runs code wherever it is touched."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name} was asked for")

    @property
    def inner(self) -> Any:
        raise RuntimeError("a property was asked for")

    def __iter__(self) -> Any:
        raise RuntimeError("iterated")

    def __bool__(self) -> bool:
        raise RuntimeError("asked whether it is true")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "value",
    [
        Colour.RED,
        Path("a/b"),
        Config,
        Config(),
        int,
        sys,
        numpy.arange(1_000_000),
        numpy.zeros(3),
        functools.partial(run, data=3),
        closing_over([1, 2]),
        run,
        remote(run),
        Plain("text"),
        in_a_circle(),
        Trap(),
        re.compile("x"),
        logging.getLogger("x"),
        threading.Thread,
        "a <marin-rule of thumb>",
        deque([1]),
        {"x": 1}.values(),
        map(str, [1]),
        ExecutorStep,
        RemoteCallable,
    ],
    ids=lambda value: type(value).__name__,
)
def test_innocent_values(value: Any) -> None:
    make_plan([ExecutorStep("s", run, {"x": value})], prefix="/p")


def test_a_large_object_is_searched_once_and_not_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[Any] = []
    monkeypatch.setattr(swallowed, "_find", lambda value, find=swallowed._find: searched.append(value) or find(value))
    value = large()
    value.inner["last"] = Trap()
    plan = make_plan([ExecutorStep(f"s{i}", run, {"x": value}) for i in range(1000)], prefix="/p")
    assert len(plan.steps) == 1000
    assert [item for item in searched if item is value] == [value]
    value.inner["last"] = Z
    make_plan([ExecutorStep("s", run, {"x": value})], prefix="/p")  # What is so far inside is not found.


def test_references_in_the_config_itself_are_found() -> None:
    plan = make_plan([ExecutorStep("s", run, Config([{"k": Z / "x"}]))], prefix="/p")
    assert plan.steps[1].dependencies == (0,)
