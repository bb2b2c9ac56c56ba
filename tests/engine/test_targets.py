"""The targets that Snakemake is asked for: one a step, and enough of them for a whole run."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin_rules.engine.plan_in_process import PlanInProcess
from marin_rules.engine.targets import Targets, ends, milestones
from marin_rules.plans.frozen import FrozenPlan
from support.fake_snakemake import storage
from support.small_plans import plan_of, step


def diamond(folder: Path) -> FrozenPlan:
    raw = step("raw")
    left, right = step("left", raw), step("right", raw)
    return plan_of(folder, step("top", left, right), step("lonely"))


def test_a_target_is_named_after_its_step_and_rule(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, step("a"))
    targets = Targets(PlanInProcess(plan), storage)
    assert targets.of(0) == f"storage/a-{plan.steps[0].hash}#compute"
    assert targets.of_rule("compute") == "storage/{step}#compute"


def test_a_target_is_made_once(tmp_path: Path) -> None:
    asked: list[str] = []

    def counting(query: str, *, retrieve: bool) -> str:
        asked.append(query)
        return query

    targets = Targets(PlanInProcess(diamond(tmp_path)), counting)
    assert targets.of(1) is targets.of(1)
    assert len(asked) == 1


def test_the_ends_are_what_nothing_else_needs(tmp_path: Path) -> None:
    plan = diamond(tmp_path)
    assert [item.name for item in ends(plan.steps)] == ["top", "lonely"]
    assert [item.name for item in ends(plan.steps[:3])] == ["left", "right"], "of those that are asked about"
    assert ends([]) == []


@pytest.mark.parametrize(("length", "expected"), [(1, []), (3, ["s2"]), (7, ["s2", "s5"])])
def test_milestones_keep_recursion_short(tmp_path: Path, length: int, expected: list[str]) -> None:
    steps = [step("s0")]
    for number in range(1, length):
        steps.append(step(f"s{number}", steps[-1]))
    assert [item.name for item in milestones(plan_of(tmp_path, steps[-1]).steps, distance=3)] == expected


def test_all_targets_of_a_run_come_first_things_first(tmp_path: Path) -> None:
    steps = [step("s0")]
    for number in range(1, 250):
        steps.append(step(f"s{number}", steps[-1]))
    plan = plan_of(tmp_path, steps[-1])
    asked = Targets(PlanInProcess(plan), storage).of_all(plan.steps)
    assert [target.split("/")[1].split("-")[0] for target in asked] == ["s99", "s199", "s249"]


def test_folders_of_targets_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of(tmp_path, step("deep/er/a"), step("b"))
    Targets(PlanInProcess(plan), storage).hold_folders(plan.steps)
    kept = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob(".keep"))
    assert kept == ["storage/.keep", "storage/deep/er/.keep"]
