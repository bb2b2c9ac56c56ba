"""What a plan carries about where and with what its steps run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marin_rules import ExecutorStep, PlanError, ResourceConfig, remote
from marin_rules.machines import MachineRequest
from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.plan_file import read_plan, write_plan
from marin_rules.plans.run import new_run
from marin_rules.worker.exit_codes import EXIT_FAILED
from marin_rules.worker.main import main, parse


def work(config: Any) -> None:
    """A step."""


def frozen(folder: Path, *steps: ExecutorStep[Any]) -> FrozenPlan:
    """The plan of an experiment in `folder`, as a job reads it."""
    run = new_run(prefix=str(folder / "out"), caller_path=str(folder / "experiment.py"))
    path = str(folder / "plan")
    write_plan(freeze(make_plan(steps, prefix=run.prefix), replace(run, python_path=())), path)
    return read_plan(path)


def test_requests_and_names_of_jobs_travel(tmp_path: Path) -> None:
    resources = ResourceConfig.with_gpu("A100", count=2, replicas=2, device_alternatives=["H100"])
    plan = frozen(
        tmp_path,
        ExecutorStep("plain", work, {}),
        ExecutorStep("far", remote(work, resources=resources, name="training"), {}),
    )
    plain, far = plan.steps
    assert (plain.machines, plain.job_name) == (None, None)
    assert far.machines == MachineRequest.from_resources(resources)
    assert far.job_name == "training"


def test_steps_with_equal_needs_share_an_environment(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "1"\n[project.optional-dependencies]\nfast = ["iniconfig>=2"]\n'
    )
    plan = frozen(
        tmp_path,
        ExecutorStep("none", remote(work), {}),
        ExecutorStep("one", remote(work, pip_dependency_groups=["fast"]), {}),
        ExecutorStep("two", remote(work, pip_dependency_groups=["fast"], env_vars={"A": "1"}), {}),
        ExecutorStep("three", remote(work, pip_dependency_groups=["fast", "six"]), {}),
    )
    assert [step.software for step in plan.steps] == [None, 0, 0, 1]
    assert "iniconfig>=2" in plan.software[0].requirements
    assert "six" not in plan.software[0].requirements
    assert "six" in plan.software[1].requirements


def test_a_group_that_is_none_is_refused_by_the_name_of_its_step(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"step 'train'.*not a package!"):
        frozen(tmp_path, ExecutorStep("train", remote(work, pip_dependency_groups=["not a package!"]), {}))


def test_a_conda_file_is_found_beside_the_experiment_then_in_the_project(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "own.yaml").touch()
    plan = frozen(
        tmp_path,
        ExecutorStep("own", remote(work, conda="envs/own.yaml"), {}),
        ExecutorStep("shared", work, {}, conda="text-tools.yaml"),
        ExecutorStep("both", remote(work, conda="missing.yaml"), {}, conda="envs/own.yaml"),
    )
    own, shared, both = (step.conda_file for step in plan.steps)
    assert own == both == str(tmp_path / "envs" / "own.yaml")
    assert shared is not None
    assert shared.endswith("/envs/text-tools.yaml")
    with pytest.raises(PlanError, match=r"step 's': there is no conda environment file missing.yaml: looked for "):
        frozen(tmp_path, ExecutorStep("s", work, {}, conda="missing.yaml"))


def test_a_worker_of_another_python_refuses_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = frozen(tmp_path, ExecutorStep("s", work, {}))
    plan.run = replace(plan.run, python_version="3.9")
    write_plan(plan, str(tmp_path / "old"))
    options = parse(["--plan", str(tmp_path / "old"), "--step", plan.steps[0].key])
    assert main(options) == EXIT_FAILED
    said = capsys.readouterr().err
    assert "planned with Python 3.9" in said
    assert "Give the step's environment Python 3.9" in said
    assert not (tmp_path / "out").exists()
