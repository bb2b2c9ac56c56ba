"""The last word of a run: nothing that was asked for is called done unless it is."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from marin_rules import ExecutorStep
from marin_rules.engine.cut import Cut, left_out
from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.run import new_run
from marin_rules.views.results import results
from support.lab import Lab


def never_called(config: Any) -> None:
    """A step's function."""


@pytest.fixture
def plan() -> FrozenPlan:
    """raw <- clean <- model, and clean <- stats; model and stats are asked for."""
    raw = ExecutorStep("raw", never_called, [])
    clean = ExecutorStep("clean", never_called, [raw])
    asked = [ExecutorStep(name, never_called, [clean]) for name in ("model", "stats")]
    return freeze(make_plan(asked, prefix="/p"), new_run(prefix="/p", caller_path="experiment.py"))


def told(plan: FrozenPlan, done: Collection[str], cut: Cut) -> list[str]:
    """The lines, without paths; a rule is named like its step."""
    left = [step for step in plan.steps if step.name not in done]
    without = left_out(left, lambda step: (step.name, f"{step.key}#{step.name}"), cut)
    text = results(plan, lambda step: step.name in done, without)
    for step in plan.steps:
        text = text.replace(f"  {step.output_path}", "")
    return text.splitlines()


ALL = ("raw", "clean", "model", "stats")


@pytest.mark.parametrize(
    ("done", "cut", "lines"),
    [
        (ALL, Cut(), ["all done, the results are in:", "  model", "  stats"]),
        (ALL, Cut(until=["clean"]), ["all done, the results are in:", "  model", "  stats"]),
        (("model", "stats"), Cut(), ["all done, the results are in:", "  model", "  stats"]),
        (
            ("raw", "clean", "stats"),
            Cut(omit_from=["model"]),
            [
                "asked for, but not built:",
                "  model  (--omit-from model leaves it out)",
                "the other results are in:",
                "  stats",
            ],
        ),
        (
            (),
            Cut(omit_from=["raw"]),
            ["asked for, but not built:"]
            + [f"  {name}  (it depends on raw, which --omit-from leaves out)" for name in ("model", "stats")],
        ),
        (
            ("raw", "clean"),
            Cut(until=["raw", "clean"]),
            ["asked for, but not built:"]
            + [f"  {name}  (--until clean raw stops before it)" for name in ("model", "stats")],
        ),
        (
            ("raw", "clean", "model"),
            Cut(),
            [
                "asked for, but not built:",
                "  stats  (it is not among the targets of this command)",
                "the other results are in:",
                "  model",
            ],
        ),
    ],
)
def test_what_is_told(plan: FrozenPlan, done: Collection[str], cut: Cut, lines: list[str]) -> None:
    assert told(plan, done, cut) == lines


def test_long_lists_are_cut(tmp_path: Path) -> None:
    asked = [ExecutorStep(f"s{number}", never_called, []) for number in range(25)]
    plan = freeze(make_plan(asked, prefix="/p"), new_run(prefix="/p", caller_path="experiment.py"))
    lines = told(plan, [step.name for step in asked], Cut())
    assert len(lines) == 22
    assert lines[-1] == "  ... and 5 more under /p"


def test_a_run_that_leaves_steps_out_says_so(lab: Lab) -> None:
    file = lab.experiment(
        """
        from marin_rules import ExecutorStep, executor_main

        def first(config):
            pass

        def second(config):
            pass

        a = ExecutorStep("a", first, [])
        b = ExecutorStep("b", second, [a])

        if __name__ == "__main__":
            executor_main(steps=[b])
        """
    )
    for arguments, reason in (
        (["--omit-from", "first"], "it depends on a, which --omit-from leaves out"),
        (["--until", "first"], "--until first stops before it"),
    ):
        result = lab.snakemake(*arguments, experiment=file)
        assert "all done" not in result.output
        assert "asked for, but not built:\n  b  " in result.output
        assert f"({reason})" in result.output
        assert lab.status_of("b") is None
    assert lab.status_of("a") == "SUCCESS"


@pytest.mark.parametrize(
    ("flags", "runs", "reason"),
    [
        (["--until", "grow"], "ab", "--until grow stops before it"),
        (["--until", "grow", "end", "--omit-from", "end"], "ab", "--omit-from end leaves it out"),
        (["--until", "grow", "--omit-from", "grow"], "", "it depends on b, which --omit-from leaves out"),
    ],
)
def test_a_rule_whose_steps_need_each_other(flags: list[str], runs: str, reason: str, lab: Lab) -> None:
    file = lab.experiment(
        """
        from marin_rules import ExecutorStep, executor_main

        def grow(config):
            pass

        def end(config):
            pass

        a = ExecutorStep("a", grow, [])
        b = ExecutorStep("b", grow, [a])
        c = ExecutorStep("c", end, [b])

        if __name__ == "__main__":
            executor_main(steps=[c])
        """
    )
    result = lab.snakemake(*flags, experiment=file)
    assert result.code == 0, result.output
    assert result.started == list(runs)
    assert {name: lab.status_of(name) for name in "abc"} == {
        name: "SUCCESS" if name in runs else None for name in "abc"
    }
    assert f"asked for, but not built:\n  c  {lab.prefix}/" in result.output
    assert f"({reason})" in result.output


def test_a_finished_step_that_is_left_out_of_what_is_forced_is_not_called_done(lab: Lab) -> None:
    file = lab.experiment(
        """
        from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

        def note(path):
            with open(f"{path}/attempts", "a") as file:
                file.write("x")

        def first(config):
            note(config["path"])

        def second(config):
            note(config["path"])

        a = ExecutorStep("a", first, {"path": THIS_OUTPUT_PATH})
        b = ExecutorStep("b", second, {"path": THIS_OUTPUT_PATH, "a": a})

        if __name__ == "__main__":
            executor_main(steps=[b])
        """
    )
    assert lab.snakemake(experiment=file).code == 0
    for flags, config, attempts, reason in (
        (("--until", "first"), {"force": "^a$"}, "xx", "--until first stops before it"),
        (("--omit-from", "first"), {"force": "^a$"}, "xx", "it depends on a, which --omit-from leaves out"),
        (("--until", "first", "-F"), {}, "xxx", "--until first stops before it"),
    ):
        for more in (("-n",), ("-n", "-p"), ()):
            result = lab.snakemake(*flags, *more, experiment=file, config=config)
            assert result.code == 0
            assert f"({reason})" in result.output, (flags, more)
        assert "all done" not in result.output
        assert "asked for, but not built:\n  b  " in result.output
        assert (lab.folder_of("a") / "attempts").read_text() == attempts
        assert (lab.folder_of("b") / "attempts").read_text() == "x"
    assert "all done" in lab.snakemake(experiment=file, config={"force": "^a$"}).output
    assert (lab.folder_of("b") / "attempts").read_text() == "xx"


def test_a_result_that_was_deleted_during_the_run_is_not_called_done(lab: Lab) -> None:
    file = lab.experiment(
        """
        from marin_rules import ExecutorStep, executor_main

        def first(config):
            pass

        def second(config):
            open("gate").read()

        a = ExecutorStep("a", first, [])

        if __name__ == "__main__":
            executor_main(steps=[a, ExecutorStep("b", second, [a])])
        """
    )
    run = lab.start_snakemake(experiment=file)
    run.wait_for(lambda: list(lab.prefix.glob("b-*/.executor_info")), "the second step runs")
    shutil.rmtree(lab.folder_of("a"))
    lab.open_gate()
    done = run.wait()
    assert done.code == 1, done.output
    assert "all done" not in done.output
    assert "asked for, but no longer there:\n  a  " in done.output
    assert "its folder was deleted or moved during this run" in done.output
    assert "the other results are in:\n  b  " in done.output
    assert lab.status_of("b") == "SUCCESS"
