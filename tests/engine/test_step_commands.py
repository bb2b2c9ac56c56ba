"""What jobs of steps execute, and which conda file their rules name."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from marin_rules.driver.environments import SoftwareFolder
from marin_rules.engine.step_commands import StepCommands, conda_file, is_plain
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.run import python_version
from marin_rules.software.environment import Environment
from support.small_plans import plan_of, step

UV = Environment.here(["six==1.17.0"], groups=["text"])


@pytest.fixture
def plan(tmp_path: Path) -> FrozenPlan:
    (tmp_path / "own.yaml").touch()
    plan = plan_of(tmp_path, step("plain"), step("own", conda="own.yaml"), step("made"))
    plan.steps[2] = replace(plan.steps[2], software=0)
    plan.software.append(UV)
    return plan


def commands(plan: FrozenPlan, *, deploys_conda: bool = False) -> StepCommands:
    software = SoftwareFolder(plan, deploys_conda=deploys_conda)
    software.path, software.package = "/environments", "/environments/package"
    return StepCommands(plan, software, deploys_conda=deploys_conda)


@pytest.mark.parametrize(
    ("deploys_conda", "name", "python", "package"),
    [
        (False, None, sys.executable, "-"),
        (False, "plain", sys.executable, "-"),
        (False, "own", sys.executable, "-"),
        (False, "made", "/environments/NAME/bin/python", "/environments/package"),
        (True, None, "conda", "/environments/package"),
        (True, "own", "conda", "/environments/package"),
        (True, "made", "/environments/NAME/bin/python", "/environments/package"),
    ],
)
def test_the_python_of_a_step(
    plan: FrozenPlan,
    deploys_conda: bool,
    name: str | None,
    python: str,
    package: str,
) -> None:
    asked = None if name is None else next(item for item in plan.steps if item.name == name)
    words = shlex.split(commands(plan, deploys_conda=deploys_conda).command(asked))
    assert words[0] == "source"
    assert words[2:4] == [python.replace("NAME", UV.name), package]
    assert words[4:] == ["--digest", plan.digest, "--plan", plan.run.plan_path, "--step"]


def test_a_path_with_spaces_and_quotes_stays_one_word(plan: FrozenPlan) -> None:
    plan.run = replace(plan.run, directory="/a b/it's")
    assert "/a b/it's/plan" in shlex.split(commands(plan).command(None))


def test_what_is_not_a_wildcard_stays_as_it_is_in_a_leased_script(plan: FrozenPlan) -> None:
    plan.run = replace(plan.run, directory="/with {braces}")
    leased = commands(plan).leased("echo {params.path:q}", "awk '{print}'")
    filled = leased.format(
        wildcards=type("W", (), {"step": "data-123456"}), log="a.log", params=type("P", (), {"path": _Quoted("p")})
    )
    first, script, end = filled.rstrip("\n").split("\n")
    words = shlex.split(first)
    assert "/with {braces}/plan" in words
    assert words[words.index("--step") + 1] == "data-123456"
    assert words[words.index("--script") + 1] == "awk '{print}'"
    assert (script, end) == ("echo 'p'", "END_OF_SCRIPT")


class _Quoted(str):
    """Snakemake's `:q`."""

    def __format__(self, spec: str) -> str:
        return f"'{self}'" if spec == "q" else str(self)


def test_the_conda_file_of_a_step(plan: FrozenPlan, tmp_path: Path) -> None:
    plain, own, made = plan.steps
    default = conda_file(None)
    assert default is not None
    assert Path(default).name == f"steps-{python_version()}.yaml"
    assert Path(default).is_file()
    assert conda_file(plain) == default
    assert conda_file(own) == str(tmp_path / "own.yaml")
    assert conda_file(made) is None, "uv makes its environment"
    assert conda_file(replace(made, conda_file="own.yaml")) == "own.yaml"
    assert [is_plain(item) for item in plan.steps] == [True, False, False]
