"""Return values as JSON: what has a form of its own, what is kept as text, and what is no result at all."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, namedtuple
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any, NoReturn

import numpy
import pytest

from marin_rules.state.returned_value import UnfinishedError, returned_value


@dataclass(frozen=True)
class Score:
    loss: Any
    parts: Any = ()


class Colour(Enum):
    RED = numpy.float32(0.5)


class Word(StrEnum):
    YES = "yes"


class Number(IntEnum):
    ONE = 1


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Lying:
    """Looks like an array, but is none."""

    shape = (2,)

    def tolist(self) -> Any:
        return object()

    def __str__(self) -> str:
        return "lying"


Point = namedtuple("Point", "x y")


def refuse_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")


def parsed(text: str | None) -> Any:
    assert text is not None
    return json.loads(text, parse_constant=refuse_constant)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (False, False),
        ("text", "text"),
        ("\ud800", "\ud800"),
        (0.1, 0.1),
        ([1, (2, 3)], [1, [2, 3]]),
        ({"a": {1: 2, None: 3, False: 4, 1.5: 5}}, {"a": {"1": 2, "null": 3, "false": 4, "1.5": 5}}),
        ({numpy.int64(3): 1, Word.YES: 2, (1, 2): 3}, {"3": 1, "yes": 2, "(1, 2)": 3}),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (Point(1, 2), [1, 2]),
        (Score(0.5, [Score(1)]), {"loss": 0.5, "parts": [{"loss": 1, "parts": []}]}),
        ([Score(1)], [{"loss": 1, "parts": []}]),
        (numpy.float32(0.5), 0.5),
        (numpy.float64(0.1), 0.1),
        (numpy.int64(7), 7),
        (numpy.bool_(True), True),
        (numpy.array(3), 3),
        (numpy.arange(3), [0, 1, 2]),
        (numpy.array([[0.5, math.nan]]), [[0.5, "NaN"]]),
        ({"loss": numpy.float32("nan")}, {"loss": "NaN"}),
        ([math.nan, math.inf, -math.inf], ["NaN", "Infinity", "-Infinity"]),
        (Colour.RED, 0.5),
        (Word.YES, "yes"),
        (Number.ONE, 1),
        (Path("a/b"), "a/b"),
        (nested(99), nested(99)),
    ],
)
def test_values_with_a_form_of_their_own(value: Any, expected: Any) -> None:
    artifact = returned_value(value)
    assert parsed(artifact.text) == expected
    assert type(parsed(artifact.text)) is type(expected)
    assert artifact.warning is None


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_have_can_be_taken_back(text: str) -> None:
    assert repr(float(parsed(returned_value(float(text)).text))) == repr(float(text))


def test_nothing_returned_is_null() -> None:
    assert returned_value(None).text == "null"
    assert returned_value(None).warning is None


@pytest.mark.parametrize(
    ("value", "expected", "kind"),
    [
        ({7}, [7], "set"),
        ([datetime(2026, 1, 1, tzinfo=UTC)], ["2026-01-01 00:00:00+00:00"], "datetime"),
        ({"x": 1 + 2j}, {"x": "(1+2j)"}, "complex"),
        (b"ab", "b'ab'", "bytes"),
        (Lying(), "lying", "Lying"),
        (print, "builtins.print", "builtin_function_or_method"),
        (Score, f"{__name__}.Score", "type"),
        (numpy.array([1j]), ["1j"], "complex"),
    ],
)
def test_values_that_are_kept_as_text(value: Any, expected: Any, kind: str) -> None:
    artifact = returned_value(value)
    assert parsed(artifact.text) == expected
    assert artifact.warning == f"the return value is not JSON ({kind}); the text of that was saved instead"


def test_a_large_array_is_kept_as_its_short_text() -> None:
    artifact = returned_value(numpy.zeros(1_000_000))
    assert len(parsed(artifact.text)) < 1000
    assert "ndarray" in (artifact.warning or "")


def circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (nested(101), "nested more than 100 levels"),
        (nested(100_000), "nested more than 100 levels"),
        (circle(), "nested more than 100 levels"),
        (Unprintable(), "no text"),
        ([{"x": Unprintable()}], "no text"),
        (10**5000, "integer string conversion"),
    ],
    ids=["deep", "very deep", "circle", "unprintable", "unprintable inside", "long number"],
)
def test_values_that_cannot_be_saved_undo_nothing(value: Any, reason: str) -> None:
    artifact = returned_value(value)
    assert artifact.text is None
    assert reason in (artifact.warning or "")
    assert "none of it was saved" in (artifact.warning or "")


async def coroutine() -> None:
    """Never awaited."""


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("make", "kind"),
    [(coroutine, "a coroutine"), (generator, "a generator"), (async_generator, "an async generator")],
)
def test_what_has_not_run_is_no_result(make: Any, kind: str) -> None:
    with pytest.raises(UnfinishedError, match=f"the function returned {kind}, whose body has not run"):
        returned_value(make())


def test_a_generator_expression_undoes_nothing() -> None:
    artifact = returned_value(x for x in [1])
    assert "generator" in (artifact.warning or "")
