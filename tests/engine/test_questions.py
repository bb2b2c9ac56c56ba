"""What people ask of Snakemake about steps is done, or refused with what to type instead."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from marin_rules import ExecutorStep
from marin_rules.engine.targets import milestones
from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.run import new_run
from support.lab import Lab

EXPERIMENT = """
    import os
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, output_path_of

    def note(config):
        with open("ran", "a") as file:
            file.write(os.path.basename(config["path"])[0])

    def first(config):
        note(config)

    def second(config):
        note(config)

    a = ExecutorStep("a", first, {"path": THIS_OUTPUT_PATH})
    b = ExecutorStep("b", second, {"path": THIS_OUTPUT_PATH, "input": output_path_of(a)})
    c = ExecutorStep("c", first, {"path": THIS_OUTPUT_PATH})

    if __name__ == "__main__":
        executor_main(steps=[b, c])
"""


def test_one_step_runs_again_by_its_name(lab: Lab, tmp_path: Path) -> None:
    file = lab.experiment(EXPERIMENT)
    ran = tmp_path / "ran"
    assert lab.snakemake(experiment=file).code == 0
    for again, expected in (
        (lambda: lab.snakemake(experiment=file, config={"force": "^b$"}), "b"),
        (lambda: lab.python(file, "--prefix", lab.prefix, "--force", '["^a$", "c"]'), "abc"),
    ):
        ran.unlink()
        result = again()
        assert result.code == 0, result.output
        assert sorted(ran.read_text()) == list(expected)

    before = ran.read_text()
    for arguments, config, said in (
        (["-R", "a"], {}, "-R takes rules, and a is a step. To run it again: `--config force='^a$'`."),
        (["--until", "b"], {}, "--until takes rules, and b is a step. The rule second, which runs it"),
        (
            ["b"],
            {},
            "b is a step, and Snakemake wants a target. To run it and what it needs: `--config run_only='^b$'`",
        ),
        (["-n", "second"], {}, "second is the rule of steps, and Snakemake wants a target."),
        ([], {"force": "^d"}, "force: '^d' matches no step"),
        (["--summary"], {}, "--summary is about files and their dates"),
        (
            ["--delete-all-output"],
            {},
            "--delete-all-output deletes nothing that steps have written",
        ),
    ):
        refused = lab.snakemake(*arguments, experiment=file, config=config)
        assert refused.code == 1
        assert said in refused.output
        assert "1970" not in refused.output
    assert ran.read_text() == before


def test_marin_rules_tells_its_version(lab: Lab) -> None:
    result = lab.start([Path(sys.executable).with_name("marin-rules"), "--version"]).wait()
    assert result.code == 0
    assert result.output.startswith("marin-rules ")
    assert result.output.split()[1][0].isdigit()


# -- long chains ---------------------------------------------------------------------------------------------


def chain(length: int) -> list[ExecutorStep[Any]]:
    steps: list[ExecutorStep[Any]] = []
    for number in range(length):
        steps.append(ExecutorStep(f"s{number}", print, steps[-1:]))
    return steps


@pytest.mark.parametrize(
    ("length", "expected"),
    [(1, []), (9, []), (10, ["s9"]), (35, ["s9", "s19", "s29"])],
)
def test_milestones_of_a_chain(length: int, expected: list[str]) -> None:
    plan = freeze(make_plan(chain(length)[-1:], prefix="/p"), new_run(prefix="/p", caller_path="x.py"))
    assert [step.name for step in milestones(plan.steps, 10)] == expected


def test_milestones_come_in_the_order_of_their_depth() -> None:
    """Two chains: what is deeper is never asked for before what is less deep."""
    ends = [chain(25)[-1], *(ExecutorStep(f"other-{step.name}", print, [step]) for step in chain(15)[-1:])]
    plan = freeze(make_plan(ends, prefix="/p"), new_run(prefix="/p", caller_path="x.py"))
    assert [step.name for step in milestones(plan.steps, 10)] == ["s9", "s19"]


def test_a_chain_of_three_thousand_steps_is_planned(lab: Lab) -> None:
    file = lab.experiment(
        """
        from marin_rules import ExecutorStep, executor_main

        step = ExecutorStep("s0", print, [])
        for number in range(1, 3000):
            step = ExecutorStep(f"s{number}", print, [step])
        if __name__ == "__main__":
            executor_main(steps=[step])
        """
    )
    result = lab.snakemake("-n", experiment=file, timeout=300)
    assert result.code == 0, result.output[-3000:]
    assert "3000 steps: 3000 would run" in result.output
