"""`python x.py --dry_run`: shown without an engine where that can tell the same, and refused where a run would be."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marin_rules import ExecutorStep, PlanError, ResourceConfig, SettingsError, SnakemakeRule, remote
from marin_rules.driver.dry_run import needs_engine, show
from marin_rules.driver.executor import Executor
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.prepare import PlanSettings, prepare
from marin_rules.state.status import CorruptStatusError, Status, status_bytes, status_path
from support.lab import Lab


def nothing(config: Any) -> None:
    """Never called here."""


def planned(prefix: Path, *more: ExecutorStep[Any], **settings: Any) -> FrozenPlan:
    data: ExecutorStep[Any] = ExecutorStep("data", nothing, {"number": 1})
    model: ExecutorStep[Any] = ExecutorStep("model", nothing, {"data": data})
    return prepare([model, *more], PlanSettings(prefix=str(prefix), caller_path="x.py", **settings))


def leave(plan: FrozenPlan, name: str, content: bytes) -> None:
    """What is found in the status of a step."""
    (step,) = (step for step in plan.steps if step.name == name)
    path = Path(status_path(step.output_path))
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory without configuration, and nobody's profile."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)


def test_the_table_is_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big: ExecutorStep[Any] = ExecutorStep("big", remote(nothing, resources=ResourceConfig(ram="9000000g")), {})
    plan = planned(tmp_path / "out", big, warnings=["mind the step"])
    leave(plan, "data", status_bytes(Status.SUCCESS, str(tmp_path)))
    show(plan)
    said = capsys.readouterr()
    assert said.out == ""
    paths = {step.name: step.output_path for step in plan.steps}
    lines = [line.split("  (")[0].rstrip() for line in said.err.splitlines()]
    assert lines[:3] == [f"experiment x.py, prefix {tmp_path}/out", "warning: mind the step", ""]
    assert f"cached     data   {paths['data']}" in lines
    assert f"would run  model  {paths['model']}" in lines
    assert "             -> here: without the 9000000G of memory it asks for" in lines
    assert lines[-2:] == ["3 steps: 2 would run, 1 cached", ""]
    assert not (tmp_path / "out" / "experiments").exists()


def test_it_says_what_snakemake_says(lab: Lab) -> None:
    file = lab.experiment(
        """
        from marin_rules import ExecutorStep, executor_main, remote, ResourceConfig

        def work(config):
            pass

        data = ExecutorStep("data", work, {})
        model = ExecutorStep("model", remote(work, resources=ResourceConfig(cpu=1000)), {"data": data})

        if __name__ == "__main__":
            executor_main(steps=[model])
        """
    )
    through_snakemake = lab.snakemake("-n", experiment=file)
    directly = lab.python(file, "--dry_run", "--prefix", lab.prefix)
    assert (directly.code, through_snakemake.code) == (0, 0)
    about_profiles, *said = through_snakemake.output.splitlines()
    assert about_profiles.startswith("Using workflow specific profile")
    assert directly.output.splitlines() == said


def test_forced_steps_would_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(tmp_path / "out", force=["^model$"])
    for name in ("data", "model"):
        leave(plan, name, status_bytes(Status.SUCCESS, str(tmp_path)))
    show(plan)
    assert "2 steps: 1 would run, 1 cached" in capsys.readouterr().err


def test_a_damaged_status_is_refused(tmp_path: Path) -> None:
    plan = planned(tmp_path / "out")
    leave(plan, "data", b"\0\xff")
    with pytest.raises(CorruptStatusError, match=r"data-[0-9a-f]{6}/.executor_status"):
        show(plan)


def test_a_wrong_configuration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text("experimet: x.py\n")
    with pytest.raises(SettingsError, match="Did you mean 'experiment'"):
        show(planned(tmp_path / "out"))


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"cluster: [1\n", "is not YAML"), (b"cluster: \xff\n", "is not YAML"), (b"- a\n- b\n", "has no keys")],
)
def test_a_configuration_that_cannot_be_read_is_refused_by_name(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_bytes(content)
    with pytest.raises(SettingsError, match=f"{tmp_path}/config/config.yaml {why}"):
        show(planned(tmp_path / "out"))


def test_what_cannot_travel_is_refused_by_a_dry_run_too(tmp_path: Path) -> None:
    with open(os.devnull) as file:
        step: ExecutorStep[Any] = ExecutorStep("open", nothing, {"file": file})
        with pytest.raises(PlanError, match=r"'open'.*cannot be sent"):
            Executor(str(tmp_path / "out"), str(tmp_path / "infos")).run([step], dry_run=True)


@pytest.mark.parametrize(("profile", "wanted"), [(None, False), ("none", False), ("slurm", True), ("", True)])
def test_a_profile_wants_snakemake(
    profile: str | None, wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if profile is not None:
        monkeypatch.setenv("SNAKEMAKE_PROFILE", profile)
    assert needs_engine(planned(tmp_path)) is wanted


def test_hand_written_rules_want_snakemake(tmp_path: Path) -> None:
    by_hand: ExecutorStep[Any] = ExecutorStep("by_hand", SnakemakeRule("compile"), {})
    assert needs_engine(planned(tmp_path, by_hand))
    plan = planned(tmp_path)
    plan.run = replace(plan.run, rule_files=("x.smk",))
    assert needs_engine(plan)


def test_a_step_without_a_function_is_warned_about_if_it_is_not_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned(tmp_path / "out", ExecutorStep("raw", None, None))
    show(plan)
    assert "warning: a run would stop before its first step: step 'raw' has no func" in capsys.readouterr().err
    leave(plan, "raw", b"SUCCESS")
    show(plan)
    assert "warning" not in capsys.readouterr().err
