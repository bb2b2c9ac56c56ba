"""The table of steps: what is listed, what is only counted, and how states are worded."""

from typing import Any

import pytest

from marin_rules import ExecutorStep
from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.run import new_run
from marin_rules.state.assessment import Assessment, assess
from marin_rules.state.status import Status
from marin_rules.state.table import table


def tokenize(config: Any) -> None:
    """Never called here."""


def fit(config: Any) -> None:
    """Never called here."""


def assessed(cached: int, new: int) -> Assessment:
    """`cached` finished steps, two thirds of them of `fit`, and a chain of new ones."""
    steps: list[ExecutorStep[Any]] = [
        ExecutorStep(f"old/{number}", tokenize if number % 3 == 0 else fit, {"number": number})
        for number in range(cached)
    ]
    chain: list[ExecutorStep[Any]] = []
    for number in range(new):
        chain.append(ExecutorStep(f"new/{number}", fit, {"number": number, "after": chain[-1:]}))
    plan = freeze(make_plan([*steps, *chain], prefix="/p"), new_run(prefix="/p", caller_path="x.py"))
    statuses = {step.output_path: Status.SUCCESS if step.name.startswith("old") else None for step in plan.steps}
    return assess(plan, statuses)


def test_up_to_forty_steps_all_are_listed() -> None:
    lines = table(assessed(cached=38, new=2), dry_run=True).splitlines()
    assert sum(line.startswith("cached     old/") for line in lines) == 38
    assert lines[-1] == "40 steps: 2 would run, 38 cached"


@pytest.mark.parametrize("dry_run", [True, False])
def test_beyond_forty_the_cached_ones_are_counted_by_function(dry_run: bool) -> None:
    found = assessed(cached=90, new=2)
    lines = table(found, dry_run=dry_run).splitlines()
    run = "would run" if dry_run else "to run"
    width = max(len(run), len("cached"))
    hint = [f"{'':<{width}}  (`snakemake -n --verbose` lists them)"] if dry_run else []
    assert lines[2:] == [
        f"{'cached':<{width}}  90 steps: 60 fit, 30 tokenize",
        *hint,
        "",
        f"92 steps: 2 {run}, 90 cached",
    ]
    assert [line.split("  ")[1] for line in lines[:2]] == ["new/0", "new/1"]
    whole = table(found, dry_run=dry_run, whole=True).splitlines()
    assert sum("old/" in line for line in whole) == 90
    assert whole[-1] == lines[-1]


@pytest.mark.parametrize(
    ("dry_run", "wording", "other"), [(True, "would run", "to run"), (False, "to run", "would run")]
)
def test_one_wording_for_what_runs(dry_run: bool, wording: str, other: str) -> None:
    text = table(assessed(cached=0, new=2), dry_run=dry_run)
    assert f"(new; dependency new/0 {wording})" in text
    assert other not in text
