"""Steps that a run does again, by name."""

from __future__ import annotations

from typing import Any

import pytest

from marin_rules import ExecutorStep
from marin_rules.errors import SettingsError
from marin_rules.plan import make_plan
from marin_rules.plans.forcing import forced_steps
from marin_rules.plans.freezing import freeze
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.run import new_run


def never_called(config: Any) -> None:
    """A step's function."""


@pytest.fixture
def plan() -> FrozenPlan:
    """data <- train/small, data <- train/large; run_only leaves train/large out."""
    data = ExecutorStep("data", never_called, [])
    steps = [ExecutorStep(f"train/{name}", never_called, [data]) for name in ("small", "large")]
    made = make_plan(steps, prefix="/p", run_only=["small"])
    return freeze(made, new_run(prefix="/p", caller_path="experiment.py"))


@pytest.mark.parametrize(
    ("patterns", "names"),
    [([], []), (["^data$"], ["data"]), (["a"], ["data", "train/small"]), (["small", "data"], ["data", "train/small"])],
)
def test_which_steps_are_forced(plan: FrozenPlan, patterns: list[str], names: list[str]) -> None:
    assert [plan.steps[index].name for index in forced_steps(plan, patterns)] == names


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("dta", "'dta' matches no step that this run needs. Did you mean 'data'?"),
        ("large", "'large' matches no step that this run needs."),
        ("(", "'\\(' is not a regular expression"),
    ],
)
def test_a_pattern_that_forces_nothing_is_refused(plan: FrozenPlan, pattern: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message.replace("?", r"\?")):
        forced_steps(plan, [pattern])
