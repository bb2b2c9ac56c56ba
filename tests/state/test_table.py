"""The table of steps: what is listed, what is only counted, and how states are worded."""

from dataclasses import replace
from typing import Any

import pytest

from marin_rules import ExecutorStep
from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.run import new_run
from marin_rules.state.assessment import Assessment, State, assess
from marin_rules.state.status import Status
from marin_rules.state.table import summary, table


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


def test_of_many_functions_those_with_the_fewest_steps_are_counted_together() -> None:
    """Nine functions, with 1, 2, ... 9 finished steps."""
    found = assessed(cached=45, new=0)
    functions = [f"x.f{number}" for number in range(1, 10) for _ in range(number)]
    verdicts = [
        replace(verdict, step=replace(verdict.step, function=function))
        for verdict, function in zip(found.verdicts, functions, strict=True)
    ]
    lines = table(Assessment(tuple(verdicts)), dry_run=False).splitlines()
    assert lines == [
        "cached  45 steps: 9 f9, 8 f8, 7 f7, 6 f6, 5 f5, 4 f4, 6 of 3 other functions",
        "",
        "45 steps: 45 cached",
    ]


@pytest.mark.parametrize(("columns", "is_broken"), [("200", False), ("30", True)])
def test_a_reason_that_does_not_fit_the_terminal_has_a_line_of_its_own(
    columns: str, is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    found = assessed(cached=0, new=1)
    path = found.verdicts[0].step.output_path
    rest = [f"would run  new/0  {path}", "             (new)"] if is_broken else [f"would run  new/0  {path}  (new)"]
    assert table(found, dry_run=True).splitlines() == [*rest, "", "1 step: 1 would run"]


def test_where_steps_go_is_told_of_those_that_run() -> None:
    found = assessed(cached=1, new=2)
    text = table(found, dry_run=True, destination=lambda step: None if step.name == "new/1" else f"to {step.name}")
    assert [line.strip() for line in text.splitlines() if "->" in line] == ["-> to new/0"]


def test_colours_change_no_word() -> None:
    found = assessed(cached=1, new=1)
    coloured = table(found, dry_run=True, colour=True)
    assert "\x1b[32mcached   \x1b[0m  old/0" in coloured
    assert "\x1b[33mwould run\x1b[0m  new/0" in coloured
    for code in ("32", "33", "0"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured == table(found, dry_run=True)


@pytest.mark.parametrize(
    ("states", "line"),
    [
        ([], "0 steps: nothing to do"),
        ([State.CACHED], "1 step: 1 cached"),
        (list(State), "5 steps: 1 would run, 1 running elsewhere, 1 blocked, 1 cached, 1 not needed"),
    ],
)
def test_what_has_to_be_done_is_counted_first(states: list[State], line: str) -> None:
    verdicts = [
        replace(verdict, state=state) for verdict, state in zip(assessed(len(states), 0).verdicts, states, strict=True)
    ]
    assert summary(Assessment(tuple(verdicts)), dry_run=True) == line
