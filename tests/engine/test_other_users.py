"""What somebody else put into a prefix, a run or the working directory: refused by name, or harmless."""

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin_rules import compute_output_path
from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.plan_file import write_plan
from marin_rules.plans.run import new_run
from marin_rules.steps import ExecutorStep
from support.lab import Lab

STRANGER = 54321
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to somebody else")

EXPERIMENT = """
    from marin_rules import ExecutorStep, executor_main, this_output_path

    def work(config):
        print("worked")
        open(config["out"], "w").write("done")
        return {{"result": 1}}

    executor_main(steps=[ExecutorStep(name, work, {{"out": this_output_path("data")}}) for name in {names}])
"""


def link(name: str) -> Callable[[Path, Path], None]:
    return lambda folder, victim: (folder / name).symlink_to(victim)


def fifo(name: str) -> Callable[[Path, Path], None]:
    return lambda folder, victim: os.mkfifo(folder / name)


def directory(name: str) -> Callable[[Path, Path], None]:
    return lambda folder, victim: (folder / name).mkdir()


def text(name: str, content: str) -> Callable[[Path, Path], None]:
    return lambda folder, victim: (folder / name).write_text(content) and None


def hard_link(name: str) -> Callable[[Path, Path], None]:
    return lambda folder, victim: (folder / name).hardlink_to(victim)


def huge(name: str) -> Callable[[Path, Path], None]:
    def plant(folder: Path, victim: Path) -> None:
        (folder / name).touch()
        os.truncate(folder / name, 1 << 40)

    return plant


HARMLESS: dict[str, Callable[[Path, Path], None]] = {
    "artifact-link": link(".artifact.json"),
    "artifact-fifo": fifo(".artifact.json"),
    "artifact-hard-link": hard_link(".artifact.json"),
    "artifact-huge": huge(".artifact.json"),
    "temporary-link": link(".marin-rules-1-0123456789abcdef.tmp"),
    "rank-log-link": link(".executor_log.rank-0"),
    "log-of-a-stranger": text(".executor_log", "before\n"),
}
REFUSED: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "log-link": (link(".executor_log"), ".executor_log: it is a symbolic link"),
    "log-fifo": (fifo(".executor_log"), ".executor_log: it is a named pipe"),
    "log-directory": (directory(".executor_log"), ".executor_log: it is a directory"),
    "log-hard-link": (hard_link(".executor_log"), ".executor_log: it is a hard link"),
    "lease-fifo": (fifo(".executor_status.lock"), ".executor_status.lock: it is a named pipe"),
    "lease-directory": (directory(".executor_status.lock"), ".executor_status.lock: it is a directory"),
    "info-fifo": (fifo(".executor_info"), ".executor_info: it is a named pipe"),
    "info-huge": (huge(".executor_info"), ".executor_info: it is larger than"),
    "info-deep": (text(".executor_info", "[" * 100_000), ".executor_info is damaged"),
    "info-link": (link(".executor_info"), ".executor_info is damaged"),
}


def test_what_is_planted_among_the_data_of_steps(lab: Lab, tmp_path: Path) -> None:
    names = [*HARMLESS, *REFUSED]
    path = lab.experiment(EXPERIMENT.format(names=names))
    lab.prefix.mkdir()
    lab.prefix.chmod(0o2777)
    for name, plant in {**HARMLESS, **{name: plant for name, (plant, _) in REFUSED.items()}}.items():
        victims_copy = tmp_path / f"bashrc-{name}"
        victims_copy.write_text("mine")
        folder = lab.prefix / Path(compute_output_path(name, {"out": None}, prefix=str(lab.prefix))).name
        folder.mkdir()
        plant(folder, victims_copy)
        if os.getuid() == 0:
            for file in (folder, *folder.iterdir()):
                os.lchown(file, STRANGER, STRANGER)
    before = os.umask(0o002)
    try:
        run = lab.start([sys.executable, str(path), "--prefix", str(lab.prefix)]).wait()
    finally:
        os.umask(before)
    assert run.code == 1, run.output
    assert "Traceback" not in run.output
    for name in HARMLESS:
        assert lab.status_of(name) == "SUCCESS", f"{name}\n{run.output}"
    for name, (_, words) in REFUSED.items():
        assert lab.status_of(name) != "SUCCESS", name
        told = [line for line in run.output.splitlines() if line.startswith(f"[{name}]")]
        assert any(words in line for line in told), (name, told)
    for name in names:
        assert (tmp_path / f"bashrc-{name}").read_text() == "mine", name
    (plan,) = lab.prefix.glob("experiments/.runs/*/plan")
    assert stat.S_IMODE(plan.stat().st_mode) == 0o600
    assert stat.S_IMODE(plan.parent.stat().st_mode) & 0o777 == 0o700
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in plan.parent.glob("failures/*"))


def _harmless(config: Any) -> None:
    print("harmless")


def _evil(config: Any) -> None:
    print("evil code runs")


def _write(function: Callable[[Any], None], folder: Path, prefix: Path) -> FrozenPlan:
    run = new_run(prefix=str(prefix), caller_path=__file__)
    plan = freeze(make_plan([ExecutorStep("a", function, {})], prefix=str(prefix)), run)
    write_plan(plan, str(folder / "plan"))
    return plan


def _worker(plan: FrozenPlan, file: Path, *, digest: bool) -> list[str]:
    known = ["--digest", plan.digest] if digest else []
    return ["-m", "marin_rules.worker", *known, "--plan", str(file), "--step", plan.steps[0].key]


def test_a_plan_that_was_exchanged_is_not_executed(tmp_path: Path, lab: Lab) -> None:
    plan = _write(_harmless, tmp_path / "run", lab.prefix)
    good = (tmp_path / "run" / "plan").read_bytes()
    _write(_evil, tmp_path / "run", lab.prefix)
    refused = lab.python(*_worker(plan, tmp_path / "run" / "plan", digest=True))
    assert refused.code == 1
    assert "is not the one that this run wrote" in refused.output
    assert "evil code runs" not in refused.output
    assert not lab.prefix.exists()
    # With its digest the plan counts, whoever can write to it; without one nobody else may.
    (tmp_path / "run" / "plan").write_bytes(good)
    (tmp_path / "run" / "plan").chmod(0o666)
    refused = lab.python(*_worker(plan, tmp_path / "run" / "plan", digest=False))
    assert refused.code == 1
    assert f"{tmp_path / 'run' / 'plan'} is not used: somebody else can have written it" in refused.output
    done = lab.python(*_worker(plan, tmp_path / "run" / "plan", digest=True))
    assert done.code == 0, done.output
    assert "[a] harmless" in done.output


@needs_root
def test_a_working_directory_that_everyone_can_write_to(lab: Lab, tmp_path: Path) -> None:
    path = lab.experiment(EXPERIMENT.format(names=["a"]))
    evil = tmp_path / "evil.py"
    evil.write_text("raise SystemExit('evil code runs')")
    shared = tmp_path / "shared"
    (shared / "config").mkdir(parents=True)
    shared.chmod(0o1777)
    (shared / "config" / "config.yaml").write_text(f"experiment: {evil}\n")
    for planted in (shared / "config", shared / "config" / "config.yaml"):
        os.chown(planted, STRANGER, STRANGER)
    result = lab.snakemake("-n", cwd=shared)
    assert result.code != 0
    assert f"the configuration {shared / 'config'} is not used: it belongs to user {STRANGER}" in result.output
    assert "evil code runs" not in result.output
    assert "Traceback" not in result.output

    (shared / ".snakemake").mkdir(exist_ok=True)
    os.chown(shared / ".snakemake", STRANGER, STRANGER)
    result = lab.start([sys.executable, str(path), "--prefix", str(lab.prefix)], cwd=shared).wait()
    assert result.code != 0
    assert f"Snakemake's folder {shared / '.snakemake'} is not used" in result.output

    (tmp_path / "experiment.smk").write_text("raise SystemExit('evil code runs')")
    os.chown(tmp_path / "experiment.smk", STRANGER, STRANGER)
    tmp_path.chmod(0o1777)
    result = lab.start([sys.executable, str(path), "--prefix", str(lab.prefix)]).wait()
    assert result.code != 0
    assert f"{tmp_path / 'experiment.smk'} is not used" in result.output
    assert "evil code runs" not in result.output
    assert "Traceback" not in result.output
    assert not list(lab.prefix.glob("a-*"))


@pytest.mark.parametrize("command", ["snakemake", "python"])
def test_a_folder_of_environments_that_others_can_write_to_is_refused_in_one_line(
    command: str, lab: Lab, tmp_path: Path
) -> None:
    path = lab.experiment(
        """
        from marin_rules import ExecutorStep, executor_main, remote

        def work(config):
            print("worked")

        executor_main(steps=[ExecutorStep("a", remote(work, pip_dependency_groups=["iniconfig"]), {})])
        """
    )
    shared = tmp_path / "environments"
    shared.mkdir()
    shared.chmod(0o777)
    env = {"MARIN_ENVIRONMENTS": str(shared)}
    if command == "snakemake":
        result = lab.snakemake(experiment=path, env=env)
    else:
        result = lab.python(path, "--prefix", lab.prefix, env=env)
    assert result.code == 1, result.output
    told = [line for line in result.output.splitlines() if "everyone can write to it" in line]
    assert len(told) == 1, result.output
    assert told[0].startswith(f"error: {shared} is not used")
    assert "Traceback" not in result.output
    assert "Exception" not in result.output
    assert list(shared.iterdir()) == []
