"""`run_only`: a part of an experiment, and planning in linear time however long its chains are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from marin_rules import ExecutorStep, PlanError, output_path_of
from marin_rules.plan import Plan, make_plan


def run(config: Any) -> None:
    """A step's function; never called here."""


def step(name: str, config: Any = None) -> ExecutorStep[Any]:
    return ExecutorStep(name=name, fn=run, config=config)


def planned(*roots: ExecutorStep[Any], run_only: list[str]) -> Plan:
    return make_plan(roots, prefix="/p", run_only=run_only)


def names(plan: Plan, *, needed: bool = True) -> list[str]:
    return [item.name for item in plan.steps if item.needed or not needed]


def family() -> list[ExecutorStep[Any]]:
    raw = step("data/raw")
    tokens = step("tokenized/raw", [raw])
    model = step("models/small", [tokens, output_path_of(step("data/old")).nonblocking()])
    return [model, step("evals/small", [model])]


@pytest.mark.parametrize(
    ("patterns", "roots", "needed"),
    [
        (["^tokenized/"], ["tokenized/raw"], ["data/raw", "tokenized/raw"]),
        (["raw"], ["data/raw", "tokenized/raw"], ["data/raw", "tokenized/raw"]),
        (["small$"], ["models/small", "evals/small"], None),
        (["data/old"], ["data/old"], ["data/old"]),
        (["^data/raw$", "nope", "old"], ["data/raw", "data/old"], ["data/raw", "data/old"]),
        (["nope"], [], []),
        (["."], None, ["data/raw", "tokenized/raw", "data/old", "models/small", "evals/small"]),
    ],
)
def test_run_only(patterns: list[str], roots: list[str] | None, needed: list[str] | None) -> None:
    plan = planned(*family(), run_only=patterns)
    everything = ["data/raw", "tokenized/raw", "data/old", "models/small", "evals/small"]
    assert names(plan, needed=False) == everything, "the rest is known, but not needed"
    assert [plan.steps[index].name for index in plan.roots] == (everything if roots is None else roots)
    assert names(plan) == (["data/raw", "tokenized/raw", "models/small", "evals/small"] if needed is None else needed)
    unmatched = [pattern for pattern in patterns if pattern == "nope"]
    assert plan.warnings == tuple(f"run_only: {pattern!r} matches no step" for pattern in unmatched)


def test_a_wrong_regular_expression_is_named() -> None:
    with pytest.raises(PlanError, match=r"run_only: '\(raw' is not a regular expression \(.*position 0\)"):
        planned(*family(), run_only=["data", "(raw"])


def chain(length: int) -> ExecutorStep[Any]:
    last = step("chain/0")
    for number in range(1, length):
        last = step(f"chain/{number}", [last])
    return last


def test_run_only_on_a_chain_of_twenty_thousand() -> None:
    plan = planned(chain(20_000), run_only=["chain/", "9$", "nope"])
    assert len(plan.steps) == len(plan.roots) == len(names(plan)) == 20_000
    plan = planned(chain(2_000), run_only=["^chain/1500$"])
    assert len(names(plan)) == 1_501
    assert len(plan.roots) == 1


def test_planning_is_linear() -> None:
    few = calls(lambda: planned(chain(500), run_only=["chain/", "9$"]))
    many = calls(lambda: planned(chain(1500), run_only=["chain/", "9$"]))
    assert many / few < 3.3


def calls(action: Callable[[], Any]) -> int:
    """How many functions were called, those of the interpreter included."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count
