"""What a plan refuses of a step: functions that would not run, wrong types, versioned values whose text lies."""

from __future__ import annotations

import array
import functools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, make_dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest

from marin_rules import (
    ExecutorMainConfig,
    ExecutorStep,
    InputName,
    MarinRulesError,
    PlanError,
    ResourceConfig,
    TpuConfig,
    compute_output_path,
    executor_main,
    remote,
    versioned,
)
from marin_rules.plan import make_plan


def plain(config: Any) -> None:
    """A sound step's function; never called here."""


async def coroutine(config: Any) -> None:
    """Never awaited."""


def generator(config: Any) -> Iterator[int]:
    yield 1


async def async_generator(config: Any) -> AsyncIterator[int]:
    yield 1


class AsyncObject:
    async def __call__(self, config: Any) -> None:
        """Never awaited."""

    async def method(self, config: Any) -> None:
        """Never awaited."""

    @staticmethod
    def fine(config: Any) -> None:
        """Takes the config alone."""

    def unbound(self, config: Any) -> None:
        """Needs an object first."""


def nothing() -> None:
    """Takes no config."""


def two(config: Any, more: Any) -> None:
    """Needs more than a config."""


def by_name(*, config: Any) -> None:
    """Takes the config by name only."""


def needs_key(config: Any, *, key: int) -> None:
    """Needs a keyword."""


def wrapped_async(fn: Callable[..., Any]) -> Callable[[Any], None]:
    """Looks like `fn` to `inspect`, but is a plain function of one argument."""

    @functools.wraps(fn)
    def wrapper(config: Any) -> None:
        """Would call asyncio.run(fn(config, ...))."""

    return wrapper


def check(*steps: Any) -> None:
    make_plan(steps, prefix="/p")


def message(*steps: Any) -> str:
    with pytest.raises(PlanError) as caught:
        check(*steps)
    told = str(caught.value)
    assert "\n" not in told
    return told


@pytest.mark.parametrize(
    ("fn", "told"),
    [
        (coroutine, "is an async function"),
        (generator, "is a generator function"),
        (async_generator, "is an async generator function"),
        (functools.partial(coroutine), "is an async function"),
        (functools.partial(functools.partial(generator)), "is a generator function"),
        (functools.lru_cache(coroutine), "is an async function"),
        (AsyncObject(), "is an async function"),
        (AsyncObject().method, "is an async function"),
        (remote(coroutine), "is an async function"),
        (remote(functools.partial(generator)), "is a generator function"),
        (nothing, "nothing() cannot be called with the config alone (too many positional arguments)"),
        (lambda: None, "cannot be called with the config alone"),
        (two, "two(config, more) cannot be called with the config alone (missing a required argument: 'more')"),
        (by_name, "cannot be called with the config alone"),
        (needs_key, "'key'"),
        (functools.partial(two, config=1), "cannot be called with the config alone"),
        (functools.partial(plain, 1), "cannot be called with the config alone"),
        (AsyncObject.unbound, "cannot be called with the config alone"),
        (remote(nothing), "nothing() cannot be called with the config alone"),
        ("plain", "fn is a str, not a function"),
    ],
)
def test_functions_that_a_step_cannot_run(fn: Any, told: str) -> None:
    refusal = message(ExecutorStep("data/s", fn, None))
    assert refusal.startswith("step 'data/s'")
    assert told in refusal


@pytest.mark.parametrize(
    "fn",
    [
        plain,
        print,
        dict,
        Path,
        lambda config, more=1, *rest, **named: None,
        functools.partial(two, more=1),
        functools.partial(two, 1),
        functools.lru_cache(plain),
        remote(plain),
        AsyncObject().fine,
        AsyncObject.fine,
        wrapped_async(coroutine),
        wrapped_async(two),
    ],
)
def test_functions_that_a_step_can_run(fn: Any) -> None:
    check(ExecutorStep("s", fn, None))


@pytest.mark.parametrize("wrap", [lambda fn: fn, remote, functools.partial], ids=["alone", "marked", "twice"])
def test_a_mark_inside_a_partial_is_told_of(wrap: Callable[[Any], Any]) -> None:
    """Nobody acts on it there: the step would run without its machines, and not say so."""
    marked = remote(two, resources=ResourceConfig.with_gpu("H100", count=8))
    (warning,) = make_plan([ExecutorStep("s", wrap(functools.partial(marked, more=1)), None)], prefix="/p").warnings
    assert warning.startswith(f"step 's': {two.__module__}.two is remote(...), but is inside a functools.partial: ")
    assert make_plan([ExecutorStep("s", remote(functools.partial(two, more=1)), None)], prefix="/p").warnings == ()


GOOD = ExecutorStep("good", plain, None)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (["a"], "steps[0] is a str ('a'), neither an ExecutorStep nor a StepSpec"),
        ([GOOD, None], "steps[1] is None, neither an ExecutorStep nor a StepSpec"),
        ([[GOOD]], "steps[0] is a list, neither an ExecutorStep nor a StepSpec: write *steps"),
        ([plain], "steps[0] is the function plain, neither an ExecutorStep nor a StepSpec"),
        (GOOD, "steps is a single step, not a list of them: write steps=[step]"),
        (GOOD / "x", "steps is a single step"),
        ("ab", "steps is a str ('ab'), not a list of steps"),
        ({"a": GOOD}, "steps is a dict, not a list of steps"),
        (3, "steps is an int (3), not a list of steps"),
    ],
)
def test_steps_that_are_no_steps(steps: Any, told: str) -> None:
    with pytest.raises(PlanError, match=re.escape(told)):
        make_plan(steps, prefix="/p")
    with pytest.raises(MarinRulesError, match=re.escape(told)):
        executor_main(ExecutorMainConfig(dry_run=True), steps=steps)


def test_a_hard_coded_path_among_steps_is_nothing_to_run() -> None:
    """As in Marin: what it stands for is made elsewhere."""
    assert [step.name for step in make_plan([InputName.hardcoded("x"), GOOD], prefix="/p").steps] == [GOOD.name]
    assert make_plan([], prefix="/p").steps == ()


def test_a_step_that_does_not_run_needs_no_function() -> None:
    """A checkpoint of long ago may only be mentioned; whoever makes it need not be at hand."""
    old = ExecutorStep("old", None, None)
    plan = make_plan([ExecutorStep("new", plain, {"from": (old / "x").nonblocking()})], prefix="/p")
    assert [step.needed for step in plan.steps] == [False, True]


def test_a_step_without_a_function_is_refused_when_it_would_run() -> None:
    """Not at planning: as in Marin, one that is done needs none."""
    plan = make_plan([ExecutorStep("new", plain, {"from": ExecutorStep("old", None, None) / "x"})], prefix="/p")
    assert [step.needed for step in plan.steps] == [True, True]


@pytest.mark.parametrize("groups", ["cpu", [1]])
def test_dependency_groups_are_a_list_of_names(groups: Any) -> None:
    with pytest.raises(PlanError, match=r"step 'a': pip_dependency_groups=.* must be a list of names"):
        make_plan([ExecutorStep("a", plain, None, pip_dependency_groups=groups)], prefix="/p")


def test_resources_that_were_changed_to_what_no_machine_has_are_refused() -> None:
    resources = ResourceConfig()
    step = ExecutorStep("a", plain, None, resources=resources)
    resources.cpu = -1
    with pytest.raises(PlanError, match="step 'a': resources: cpu is -1"):
        make_plan([step], prefix="/p")
    part = ResourceConfig(device=TpuConfig("v4-128"))
    with pytest.raises(PlanError, match="step 'b': resources: replicas=1 is not a whole number of slices"):
        make_plan([ExecutorStep("b", remote(plain, resources=part), None)], prefix="/p")


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ({"resources": {"cpu": 4}}, "resources is a dict, not a ResourceConfig: use ResourceConfig.with_cpu"),
        ({"resources": ResourceConfig}, "resources is the function ResourceConfig, not a ResourceConfig"),
        ({"resources": "4"}, "resources is a str ('4'), not a ResourceConfig"),
        ({"conda": 3}, "conda is an int (3), not the path"),
        ({"description": ["x"]}, "description is a list, not a string"),
        ({"override_output_path": Path("/x")}, "override_output_path is a PosixPath, not a string"),
        ({"override_output_path": "~/x"}, "would be below a folder named '~'"),
        ({"override_output_path": "file:///x/y"}, "is not a path that a function can open. Write '/x/y'."),
        ({"override_output_path": "memory://x"}, "ends with the process that writes it"),
        ({"config": InputName.hardcoded("~/x")}, "would be below a folder named '~'"),
        ({"report": "x.png"}, "report='x.png' must be a list"),
        ({"report": 3}, "report=3 must be a list"),
        ({"report": [3]}, "report=3 must name files"),
    ],
)
def test_details_of_the_wrong_type(details: dict[str, Any], told: str) -> None:
    refusal = message(ExecutorStep(**({"name": "s", "fn": plain, "config": None} | details)))
    assert refusal.startswith("step 's'")
    assert told in refusal


@pytest.mark.parametrize(
    ("name", "prefix", "told"),
    [
        ("x" * 248, "/p", None),
        ("x" * 249, "/p", "a name of 256 bytes, and file systems take 255"),
        ("x" * 300, "/p", "Shorten the name, or divide it with slashes"),
        ("\u6f22" * 80, "/p", None),
        ("\u6f22" * 100, "/p", "a name of 307 bytes"),
        ("a/" + "y" * 300 + "/b", "/p", "a name of 300 bytes"),
        ("/".join(["x" * 200] * 25), "/p", "its output path has 50"),
        ("x" * 300, "gs://bucket", None),
        ("/".join("xyz"), "/p" * 40, None),
    ],
)
def test_names_too_long_for_a_file_system(name: str, prefix: str, told: str | None) -> None:
    step = ExecutorStep(name, plain, None)
    if told is None:
        make_plan([step], prefix=prefix)
        return
    with pytest.raises(PlanError, match=told) as caught:
        make_plan([step], prefix=prefix)
    assert len(str(caught.value)) < 250


# --- versioned values by their text


@dataclass(frozen=True)
class Deep:
    items: Any


class Prose:
    """Has a text of its own that does not change."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def middle_changed() -> Any:
    changed = numpy.arange(3000)
    changed[1500] = 0
    return changed


def test_the_path_of_a_long_array_is_not_that_of_another() -> None:
    one, other = (
        compute_output_path("s", versioned(item), prefix="/p") for item in (numpy.arange(3000), middle_changed())
    )
    assert one == other, "Marin's paths, which stay as they are"
    for values in (numpy.arange(3000), middle_changed()):
        refusal = message(ExecutorStep("s", plain, {"weights": versioned(values)}))
        assert refusal.startswith("step 's', weights: the versioned numpy.ndarray would be hashed by its text")
        assert "abbreviated" in refusal
        assert "a hash of the data" in refusal
        check(ExecutorStep("s", plain, {"weights": versioned(values.tolist())}))
        check(ExecutorStep("s", plain, {"weights": versioned(str(values))}))


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (numpy.zeros(2000), "abbreviated"),
        (numpy.zeros((100, 100)), "abbreviated"),
        (pandas.Series(range(100)), "abbreviated"),
        (pandas.DataFrame({f"column{i}": [1] for i in range(50)}), "abbreviated"),
        (Prose("a, b, ..."), "abbreviated"),
        (Prose("shape: (3,) \u2026"), "abbreviated"),
        (re.compile("a" * 300), "abbreviated"),
        (numpy.array([0.1234567890123]), "rounded"),
        (numpy.array([[1.0, 1e-9 + 1]]), "rounded"),
        (numpy.array([1 / 3], dtype=numpy.float32).astype(float), "rounded"),
        (pandas.Series([0.123456789]), "rounded"),
        (pandas.DataFrame({"x": [0.123456789]}), "rounded"),
        (object(), "memory address"),
        (Prose("<thing at 0x7f12AB>"), "memory address"),
        (plain, "memory address"),
    ],
)
@pytest.mark.parametrize(
    "wrap", [lambda value: value, lambda value: [{"k": value}], Deep, lambda value: Deep((value,))]
)
def test_texts_that_do_not_say_all(value: Any, what: str, wrap: Callable[[Any], Any]) -> None:
    refusal = message(ExecutorStep("s", plain, {"x": versioned(wrap(value))}))
    assert refusal.startswith("step 's', x")
    assert what in refusal
    assert len(refusal) < 600


@pytest.mark.parametrize(
    "value",
    [
        "wait ... for it",
        "<thing at 0x7f>",
        ["...", ("...",)],
        {"...": 1},
        frozenset(["..."]),
        b"a ... b",
        bytearray(b"..."),
        Path("a/.../b"),
        timedelta(1),
        Decimal("0.1"),
        Fraction(1, 3),
        1 + 2j,
        range(10_000),
        array.array("i", range(2000)),
        numpy.arange(1000),
        numpy.array([[1, 2], [3, 4]]),
        numpy.array([0.1, 0.25, 1e-30, numpy.inf, -numpy.inf, numpy.nan]),
        numpy.array([0.1, 1 / 3], dtype=numpy.float32),
        numpy.array(["a", "b"]),
        numpy.float32(0.1),
        numpy.int64(5),
        numpy.float64(1 / 3),
        numpy.dtype("float32"),
        numpy.float32,
        pandas.Series([1, 2, 3]),
        pandas.Timestamp("2026-01-01"),
        re.compile("a+"),
        Prose("fixed"),
        dict,
    ],
)
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [{"k": value}]])
def test_texts_that_say_all(value: Any, wrap: Callable[[Any], Any]) -> None:
    check(ExecutorStep("s", plain, {"x": versioned(wrap(value))}))


@pytest.mark.parametrize("name", ["ExecutorStep", "InputName", "OutputName", "VersionedValue", "MirroredValue"])
def test_what_marins_own_modules_have_made_is_named(name: str) -> None:
    """Where Marin is installed and nobody said compat: its placeholders would be plain data, at another path."""
    kind = make_dataclass(name, ["value"])
    kind.__module__ = "marin.execution.types"
    marins = kind(plain)
    told = message(ExecutorStep("use", plain, {"data": [marins]}))
    assert told.startswith(f"step 'use': data.[0] is Marin's own {name}, ")
    assert "compat=true" in told
    assert message(marins).startswith(f"steps[0] is Marin's own {name}, ")
