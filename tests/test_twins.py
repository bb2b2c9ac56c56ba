"""Steps that are one step although their configs differ: one warning with the fields and their values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy
import pytest

from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, remote, this_output_path, versioned
from marin_rules.plan import Plan, make_plan


def fit(config: Any) -> None:
    """A step's function; never called here."""


def steps(*configs: Any, fn: Any = fit) -> list[ExecutorStep[Any]]:
    return [ExecutorStep("fit", fn, config) for config in configs]


def planned(*configs: Any, fn: Any = fit) -> Plan:
    plan = make_plan(steps(*configs, fn=fn), prefix="/p")
    assert len(plan.steps) == 1
    return plan


@dataclass(frozen=True)
class Optimizer:
    lr: float
    schedule: Any = None


@dataclass(frozen=True)
class Config:
    optimizer: Optimizer
    layers: int = 1
    output_path: str = THIS_OUTPUT_PATH


class Tokenizer:
    def __init__(self, name: str) -> None:
        self.name = name


def made_anew() -> Any:
    return lambda x: x + 1


def test_overrides_that_differ_by_a_slash_are_one_path() -> None:
    one, other = (ExecutorStep("s", fit, None, override_output_path=path) for path in ("gs://b/x", "gs://b/x/"))
    plan = make_plan([ExecutorStep("t", fit, [one]), ExecutorStep("u", fit, [other])], prefix="/p")
    assert [step.output_path for step in plan.steps if step.name == "s"] == ["gs://b/x"]
    assert [step.config for step in plan.steps if step.name != "s"] == [["gs://b/x"]] * 2


def test_three_steps_that_differ_in_a_plain_value() -> None:
    (warning,) = planned(*({"lr": lr} for lr in (0.1, 0.2, 0.3))).warnings
    assert warning.startswith("3 steps named 'fit' are one step, fit-1f0f68, although their configs differ in lr (0.1,")
    assert "lr (0.1, 0.2, 0.3): only the first runs" in warning
    assert "versioned(...)" in warning


@pytest.mark.parametrize(
    ("one", "two", "fields"),
    [
        (Config(Optimizer(0.1)), Config(Optimizer(0.2)), "optimizer.lr (0.1, 0.2)"),
        (Config(Optimizer(0.1), 1), Config(Optimizer(0.2), 2), "optimizer.lr (0.1, 0.2), layers (1, 2)"),
        ({"a": 1}, {"a": 1, "b": 2}, "b (absent, 2)"),
        ([1, 2], [1], "[1] (2, absent)"),
        ({"a": None}, {"a": []}, "a (None, [])"),
        ("x", "y", "the config itself ('x', 'y')"),
        ({"a": this_output_path("x")}, {"a": this_output_path("y")}, "a.name ('x', 'y')"),
        ({"a": "x" * 500}, {"a": "y" * 500}, "a ('xxxxxxxxxxxxxxxx"),
        ({"a": Tokenizer("x")}, {"a": Tokenizer("y")}, "a (<"),
        ({"a": numpy.arange(3)}, {"a": numpy.arange(4)}, "a (array([0, 1, 2]), array([0, 1, 2, 3]))"),
    ],
)
def test_the_fields_are_named(one: Any, two: Any, fields: str) -> None:
    (warning,) = planned(one, two).warnings
    assert f"configs differ in {fields}" in warning
    assert len(warning) < 500


def test_many_fields_and_many_values_are_cut_short() -> None:
    (warning,) = planned(*({f"field{i}": value for i in range(30)} for value in range(50))).warnings
    assert "50 steps named 'fit'" in warning
    assert "field0 (0, 1, 2, 3, ...), field1" in warning
    assert "field3 (0, 1, 2, 3, ...), and 26 more: only" in warning


def test_secrets_are_not_shown() -> None:
    secret = "s3cr3t-value"
    fn = remote(fit, env_vars={"TOKEN": secret})
    configs = [{"header": f"Bearer {secret}", "api_key": "k1"}, {"header": "none", "api_key": "k2"}]
    (warning,) = planned(*configs, fn=fn).warnings
    assert "header (hidden, 'none'), api_key:" in warning
    assert secret not in warning


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"a": 1}, {"a": 1}),
        ({"a": math.nan}, {"a": float("nan")}),
        ({"a": Tokenizer("x")}, {"a": Tokenizer("x")}),
        ({"a": made_anew()}, {"a": made_anew()}),
        ({"a": numpy.arange(3)}, {"a": numpy.arange(3)}),
        ({"a": versioned(1)}, {"a": versioned(1)}),
        ({"a": 1}, {"a": 1.0}),
        (Config(Optimizer(0.1)), Config(Optimizer(0.1))),
        ({"a": ExecutorStep("z", fit, None)}, {"a": ExecutorStep("z", fit, None)}),
        ({"a": remote(fit)}, {"a": remote(fit, env_vars={"X": "1"})}),
    ],
)
def test_steps_that_are_alike_give_no_warning(one: Any, two: Any) -> None:
    assert make_plan(steps(one, two), prefix="/p").warnings == ()


def test_versioned_values_make_two_steps() -> None:
    plan = make_plan(steps({"lr": versioned(0.1)}, {"lr": versioned(0.2)}), prefix="/p")
    assert len(plan.steps) == 2
    assert plan.warnings == ()
