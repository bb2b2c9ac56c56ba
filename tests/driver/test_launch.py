"""What the job of a step executes, and what it is given: with the driver's files, and without."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marin_rules import ExecutorStep, ResourceConfig, remote
from marin_rules.driver import launch as launches
from marin_rules.driver.job_variables import chosen_variables
from marin_rules.driver.launch import THREADS, Launcher
from marin_rules.driver.node_python import node_python
from marin_rules.errors import SettingsError
from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.run import new_run, python_version
from marin_rules.settings.job_settings import JobSettings
from marin_rules.software import bootstrap
from marin_rules.software.pip_settings import index_variables
from marin_rules.worker.variables import exported

SECRET = "xyzzy-plugh-7331"
UNSHARED = JobSettings(shared=False, python="/opt/a python/bin/python", scratch="/local", variables=("LAB_*",))
USUAL: dict[str, Any] = {
    "cores": 3,
    "command": "source run-step ...",
    "folder": "/home/ann",
    "log": "/home/ann/{job}.log",
}


def work(config: Any) -> None: ...


def plan_below(prefix: str, **options: Any) -> FrozenPlan:
    """A plan of one step, which has a secret."""
    resources = ResourceConfig.with_cpu(**options)
    step = ExecutorStep("a/step", remote(work, resources=resources, env_vars={"TOKEN": SECRET}), {})
    return freeze(make_plan([step], prefix=prefix), new_run(prefix=prefix, caller_path="experiment.py"))


@pytest.fixture
def of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session on a login node, in which a run has begun."""
    for name, value in {"HOME": "/home/ann", "DISPLAY": ":0", "LAB_NAME": "lab", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    for name, value in exported([{"TOKEN": SECRET}]).items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("of_the_driver")
def test_with_shared_files_a_job_runs_the_drivers_command() -> None:
    plan = plan_below("/shared/out")
    launcher = Launcher(plan)
    launcher.prepare(plan.steps, say=pytest.fail)
    launch = launcher.for_step(plan.steps[0], **USUAL)
    assert (launch.script, launch.folder, launch.log) == (USUAL["command"], USUAL["folder"], USUAL["log"])
    assert launch.variables["HOME"] == "/home/ann"
    assert [launch.variables[name] for name in THREADS] == ["1", "3", "3", "3"]
    assert not {"DISPLAY", "LAB_NAME"} & {*launch.variables}
    assert launcher.explain(bootstrap.EXIT_UNREACHABLE) is None, "the code of the step's own program"


@pytest.mark.usefixtures("of_the_driver")
def test_without_them_all_it_needs_is_below_the_prefix(tmp_path: Path) -> None:
    plan = plan_below(str(tmp_path))
    launcher = Launcher(plan, UNSHARED)
    launcher.prepare(plan.steps, say=pytest.fail)
    launch = launcher.for_step(plan.steps[0], **USUAL)
    (archive,) = tmp_path.glob("experiments/.code/*.zip")
    first, second, *_ = launch.script.splitlines()
    what = f"--digest {plan.digest} --plan {plan.run.plan_path} --step {plan.steps[0].key}"
    assert first == f"set -- marin_rules.worker {what}"
    assert second == (
        f"exec '/opt/a python/bin/python' -I - {archive} {archive.stem} {python_version()} /local \"$@\""
        " <<'END_OF_BOOTSTRAP'"
    )
    assert "MARIN_RULES_START" not in launch.variables
    assert (launch.folder, launch.log) == ("/local", "/local/marin-rules-{job}.log")
    assert launch.variables["LAB_NAME"] == "lab"
    assert not {"HOME", "PATH", "DISPLAY", "PYTHONPATH", "VIRTUAL_ENV"} & {*launch.variables}


@pytest.mark.processes
@pytest.mark.usefixtures("of_the_driver")
def test_a_step_on_several_machines_takes_along_what_starts_a_process_on_the_others(tmp_path: Path) -> None:
    plan = plan_below(str(tmp_path), replicas=2)
    launcher = Launcher(plan, replace(UNSHARED, python="/bin/echo"))
    launcher.prepare(plan.steps, say=pytest.fail)
    start = launcher.for_step(plan.steps[0], **USUAL).variables["MARIN_RULES_START"]
    words = ["bash", "-c", start, "start", "a.module", "--step", "it's a step"]
    (archive,) = tmp_path.glob("experiments/.code/*.zip")
    started = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert started == f"-I - {archive} {archive.stem} {python_version()} /local a.module --step it's a step\n"
    shared = Launcher(plan)
    assert "MARIN_RULES_START" not in shared.for_step(plan.steps[0], **USUAL).variables


@pytest.mark.usefixtures("of_the_driver")
@pytest.mark.parametrize("settings", [JobSettings(), UNSHARED])
def test_secrets_are_in_the_variables_and_nowhere_else(settings: JobSettings, tmp_path: Path) -> None:
    plan = plan_below(str(tmp_path))
    launcher = Launcher(plan, settings)
    launcher.prepare(plan.steps, say=pytest.fail)
    launch = launcher.for_step(plan.steps[0], **USUAL)
    assert [SECRET in value for value in launch.variables.values()].count(True) == 1
    assert SECRET not in launch.script
    assert SECRET not in repr(launch)


def test_machines_without_a_common_disk_need_a_bucket() -> None:
    plan = plan_below("/shared/out")
    Launcher(plan, UNSHARED).check(plan.steps)
    with pytest.raises(SettingsError, match="choose a prefix in a bucket"):
        Launcher(plan, UNSHARED, has_no_disk=True).check(plan.steps)


@pytest.mark.parametrize(
    ("prefix", "change", "words"),
    [
        ("out", {}, "out, in "),
        ("/shared/out", {"rule": "tag"}, "the rule tag needs the Snakefile"),
    ],
)
def test_what_cannot_travel_is_refused_before_anything_is_sent(
    prefix: str, change: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launches, "publish", lambda *given: pytest.fail("sent"))
    plan = plan_below(prefix)
    steps = [replace(step, rule=change.get("rule")) for step in plan.steps]
    with pytest.raises(SettingsError) as refusal:
        Launcher(plan, replace(UNSHARED, python=None)).prepare(steps, say=pytest.fail)
    assert words in str(refusal.value)


def test_a_group_of_steps_needs_the_drivers_files() -> None:
    with pytest.raises(SettingsError, match="leave out --groups"):
        Launcher(plan_below("/shared/out"), UNSHARED).for_group([None], **USUAL)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (bootstrap.EXIT_UNREACHABLE, "its node could not fetch the code from the prefix"),
        (bootstrap.EXIT_DAMAGED, "what it fetched is not what this run has sent"),
        (bootstrap.EXIT_NOT_OURS, "others could put their code into the scratch folder of its node"),
        (bootstrap.EXIT_WRONG_PYTHON, "the Python of its node cannot run steps of this run"),
        (1, None),
        (None, None),
    ],
)
def test_the_exit_code_of_a_job_that_never_came_to_its_worker_is_explained(code: int | None, why: str | None) -> None:
    assert Launcher(plan_below("/shared/out"), UNSHARED).explain(code) == why


@pytest.mark.processes
def test_a_node_without_a_python_for_it_makes_one_with_uv(tmp_path: Path) -> None:
    made = node_python(JobSettings(shared=False, scratch=str(tmp_path)), "/shared/out", python_version())
    imports = "import cloudpickle, fsspec, yaml, sys; print(sys.prefix)"
    script = "\n".join([*made.lines, f"exec {made.word} -I -c '{imports}'"])
    uv, python = Path(sys.executable).parent, Path(sys.base_prefix, "bin")
    variables = chosen_variables({**os.environ, **index_variables()}, shared=False)
    environment = {**variables, "PATH": f"{python}:{uv}:/usr/bin:/bin"}

    def run() -> str:
        ran = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    prefix = Path(run())
    before = (prefix / "pyvenv.cfg").stat().st_mtime_ns
    assert prefix.parent.parent == tmp_path
    assert Path(run()) == prefix
    assert (prefix / "pyvenv.cfg").stat().st_mtime_ns == before, "it is made once"
    assert [path.name for path in prefix.parent.iterdir()] == [prefix.name]


@pytest.mark.processes
@pytest.mark.parametrize("planted", ["link", "open to all", "in an open folder", "of another user", "file"])
def test_no_python_is_started_that_others_could_have_left_there(tmp_path: Path, planted: str) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    made = node_python(JobSettings(shared=False, scratch=str(scratch)), "/shared/out", python_version())
    where = subprocess.run(
        ["bash", "-c", "\n".join(line for line in made.lines[0].splitlines()[:2]) + '\necho "$folder" "$python"'],
        capture_output=True,
        text=True,
        check=True,
    )
    folder, python = map(Path, where.stdout.split())
    theirs = tmp_path / "theirs" if planted == "link" else folder
    if planted == "file":
        folder.touch()
    else:
        program = theirs / python.relative_to(folder)
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\necho planted\n")
        program.chmod(0o755)
        theirs.chmod(0o700)
    if planted == "link":
        folder.symlink_to(theirs)
    elif planted == "open to all":
        folder.chmod(0o777)
    elif planted == "in an open folder":
        scratch.chmod(0o777)
    elif planted == "of another user":
        if os.getuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(folder, 12345, 12345)
    script = "\n".join([*made.lines, f"exec {made.word} -I -c pass"])
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (bootstrap.EXIT_NOT_OURS, "")
    assert f"{folder} is not this user's own folder, or others could exchange it" in ran.stderr
