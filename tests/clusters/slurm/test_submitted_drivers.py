"""`marin-rules submit` on a real Slurm: drivers that are jobs, and what goes wrong with them.

The experiment has a step that runs as a Slurm job and waits at a gate, and one that runs beside the driver after it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from support.lab import REPOSITORY, Lab, Result, Running
from support.slurm.cluster import SlurmCluster
from support.slurm.jobs import Job

WAITING = """
    import os
    from dataclasses import dataclass
    from marin_rules import *

    @dataclass(frozen=True)
    class Config:
        output_path: str = THIS_OUTPUT_PATH
        after: str | None = None

    def far(config):
        with open(os.path.join(config.output_path, "attempts"), "a") as file:
            print(os.environ["SLURM_JOB_ID"], file=file)
        open("gate").read()

    def near(config):
        print("came to the end, token", len(os.environ.get("TOKEN", "")))

    first = ExecutorStep("far", remote(far, resources=ResourceConfig(ram="300m")), Config())
    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep("near", near, Config(after=first / "x"))])
    """

SITE = """\
slurm:
  partition: cpu
  max_runtime: 1h
  drivers:
    partition: spare
    runtime: 30m
    memory: 1g
    extra: "--exclude=cpu1,cpu2"
"""
"""Drivers have nodes of their own, so that these can be taken away."""

PROFILE = REPOSITORY / "profiles" / "slurm"


class Drivers:
    """Submits drivers and asks for them, as a user does."""

    def __init__(self, lab: Lab, environment: Mapping[str, str], cluster: str) -> None:
        self._lab = lab
        self._environment = environment
        self._cluster = cluster

    def command(self, *words: str, env: Mapping[str, str] | None = None) -> Running:
        program = Path(sys.executable).with_name("marin-rules")
        return self._lab.start([program, *words], env={**self._environment, **(env or {})})

    def snakemake(self, experiment: Path, *more: str) -> list[str]:
        return [
            *("snakemake", "--snakefile", str(REPOSITORY / "Snakefile"), "--profile", str(PROFILE), *more),
            *("--config", f"experiment={experiment}", f"prefix={self._lab.prefix}", f"cluster={self._cluster}"),
        ]

    def submit(self, experiment: Path, *options: str, env: Mapping[str, str] | None = None) -> str:
        """Submit a run of the experiment; returns the driver's id."""
        ran = self.command("submit", "--no-wait", *options, "--", *self.snakemake(experiment), env=env).wait()
        assert ran.code == 0, ran.output
        return self.id_in(ran)

    @staticmethod
    def id_in(ran: Result) -> str:
        return next(line for line in ran.output.splitlines() if re.fullmatch(r"\w+-\d{8}-\d{6}-\w{6}", line))

    def wait(self, driver: str, timeout: float = 150.0) -> Result:
        return self.command("jobs", "wait", driver).wait(timeout)

    def log(self, driver: str) -> str:
        return self.command("jobs", "logs", driver).wait().output


@pytest.fixture
def drivers(lab: Lab, on_slurm: dict[str, str], cluster_file: Callable[[str], str]) -> Drivers:
    return Drivers(lab, on_slurm, cluster_file(SITE))


@pytest.fixture
def waiting(lab: Lab) -> Path:
    return lab.experiment(WAITING)


def attempts(lab: Lab) -> list[str]:
    """The Slurm job of each attempt of the step that waits, in order."""
    return [line for path in lab.prefix.glob("far-*/attempts") for line in path.read_text().split()]


def jobs_of(slurm: SlurmCluster) -> tuple[Job, Job]:
    """The job of the driver, and that of the step."""
    jobs = {
        ("step" if ":far-" in job.comment else "driver"): job for job in slurm.jobs() if "marin-rules" in job.comment
    }
    return jobs["driver"], jobs["step"]


def test_a_run_ends_in_results_though_the_shell_that_submitted_it_is_gone(
    lab: Lab, drivers: Drivers, waiting: Path, slurm: SlurmCluster
) -> None:
    shell = drivers.command("submit", "--name", "mine", "--", *drivers.snakemake(waiting))
    shell.wait_for(lambda: attempts(lab), "the step to run")
    os.killpg(shell.pid, signal.SIGKILL)  # As the login node goes away.
    listing = drivers.command("jobs", "list").wait().output
    driver, step = jobs_of(slurm)
    assert re.search(rf"^experiment-\S+ +mine +slurm {driver.id} +RUNNING +gpu[12] ", listing, re.MULTILINE), listing
    assert re.search(rf"^far +slurm {step.id} +RUNNING ", listing, re.MULTILINE), listing
    followed = drivers.command("jobs", "logs", "-f", "mine")
    followed.wait_for(lambda: "start  far" in followed.output, "the log")
    lab.open_gate()
    assert drivers.wait("mine").code == 0
    assert "[near] came to the end, token 0" in followed.wait().output
    assert lab.info_of("near")["run"].get("slurm") is None, "it ran beside the driver, and has no job of its own"
    assert drivers.wait("mine").code == 0, "it can be asked for after its end"
    assert driver.partition == "spare"


@pytest.mark.parametrize(
    "how",
    [
        "requeued by hand",
        "preempted",
        "preempted with grace",
        "node set down",
        "power cut",
        "time limit",
        "engine killed",
    ],
)
def test_a_driver_goes_on_where_it_was(
    how: str,
    lab: Lab,
    drivers: Drivers,
    waiting: Path,
    slurm: SlurmCluster,
    cluster_file: Callable[[str], str],
) -> None:
    if how == "preempted with grace":
        cluster_file(SITE.replace("spare", "gracious"))
    name = drivers.submit(waiting)
    lab.wait_until(lambda: attempts(lab), "the step to run")
    lab.wait_until(lambda: "start  far" in drivers.log(name), "a word about its start")
    driver, step = jobs_of(slurm)
    if how == "requeued by hand":
        slurm.run("scontrol", "requeue", driver.id)
    elif how.startswith("preempted"):
        slurm.submit("exec true", "--partition=urgent", f"--nodelist={driver.nodes}", "--exclusive", "--mem=3900")
    elif how == "node set down":
        slurm.set_down(driver.nodes)
    elif how == "power cut":
        slurm.kill_node(driver.nodes)
        slurm.set_down(driver.nodes)
    elif how == "time limit":
        slurm.run_out_of_time(driver.id)
    else:
        os.kill(engine_of(lab), signal.SIGKILL)
    lab.wait_until(lambda: f"found  far: slurm job {step.id} of {name} is at it" in drivers.log(name), "a new start")
    lab.open_gate()
    waited = drivers.wait(name)
    assert waited.code == 0, drivers.log(name)
    assert attempts(lab) == [step.id], "the step's job was left alone and taken up"
    assert [lab.status_of(step) for step in ("far", "near")] == ["SUCCESS", "SUCCESS"]
    assert len(slurm.calls("sbatch")) == 2
    assert slurm.job(driver.id).restarts == (0 if how == "engine killed" else 1)


def engine_of(lab: Lab) -> int:
    """The process of the driver that runs Snakemake."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"snakemake" in words and f"prefix={lab.prefix}".encode() in words:
                return int(folder.name)
    raise AssertionError("no engine")


@pytest.mark.parametrize("how", ["scancel", "jobs stop"])
def test_a_driver_that_a_person_ends_takes_its_jobs_along(
    how: str, lab: Lab, drivers: Drivers, waiting: Path, slurm: SlurmCluster
) -> None:
    name = drivers.submit(waiting)
    lab.wait_until(lambda: attempts(lab), "the step to run")
    lab.wait_until(lambda: "start  far" in drivers.log(name), "a word about its start")
    driver, step = jobs_of(slurm)
    if how == "scancel":
        slurm.run("scancel", driver.id)
    else:
        stopped = drivers.command("jobs", "stop", name).wait()
        assert stopped.code == 0, stopped.output
        assert f"stopped driver {name}" in stopped.output
    assert drivers.wait(name).code != 0
    assert slurm.wait_for_state(step.id, "CANCELLED", "FAILED")
    lease = lab.folder_of("far") / ".executor_status.lock"
    lab.wait_until(lambda: not lease.exists(), "the lease to be free")
    assert lab.status_of("far") == "CANCELLED"
    assert drivers.command("jobs", "list").wait().output == "nothing is running or queued\n"
    again = drivers.command("jobs", "stop", name).wait()
    assert again.code == 1
    assert f"driver {name} has ended already" in again.output


def test_a_driver_is_stopped_before_it_has_begun(
    lab: Lab, drivers: Drivers, waiting: Path, slurm: SlurmCluster
) -> None:
    for node in ("gpu1", "gpu2"):
        slurm.set_down(node)
    name = drivers.submit(waiting)
    listing = drivers.command("jobs", "list").wait().output
    assert re.search(rf"^{name} +- +slurm \d+ +PENDING ", listing, re.MULTILINE), listing
    assert drivers.command("jobs", "stop", name).wait().code == 0
    assert drivers.wait(name).code == 130
    assert not lab.prefix.exists()


def test_two_drivers_of_one_experiment_do_each_step_once(
    lab: Lab, drivers: Drivers, waiting: Path, slurm: SlurmCluster
) -> None:
    one = drivers.submit(waiting, "--name", "one")
    taken = drivers.command("submit", "--no-wait", "--name", "one", "--", *drivers.snakemake(waiting)).wait()
    assert taken.code == 1
    assert f"the name one is taken: driver {one} has it" in taken.output
    other = drivers.submit(waiting)
    for name in (one, other):
        lab.wait_until(lambda name=name: re.search("start  far|found  far", drivers.log(name)), f"{name} at the step")
    lab.open_gate()
    assert [drivers.wait(name).code for name in ("one", other)] == [0, 0]
    assert len(attempts(lab)) == 1


def test_a_submission_without_an_answer_is_looked_for_and_made_once(
    lab: Lab, drivers: Drivers, slurm: SlurmCluster, in_front_of: Callable[[str, str], dict[str, str]], waiting: Path
) -> None:
    # The first call of sbatch is made, and its answer is lost.
    lost = f"""if mkdir "$0.once" 2>/dev/null; then
        PATH={slurm.environment["PATH"]} sbatch "$@" >/dev/null
        echo "Socket timed out" >&2
        exit 1
    fi"""
    env = in_front_of("sbatch", lost)
    name = drivers.submit(waiting, env=env)
    lab.open_gate()
    assert drivers.wait(name).code == 0
    assert len([job for job in slurm.jobs() if ":far-" not in job.comment]) == 1


def test_a_submission_that_is_refused_leaves_nothing(
    lab: Lab, drivers: Drivers, waiting: Path, cluster_file: Callable[[str], str], slurm: SlurmCluster
) -> None:
    cluster_file(SITE.replace("spare", "nosuch"))
    refused = drivers.command("submit", "--", *drivers.snakemake(waiting)).wait()
    assert refused.code == 1
    assert "invalid partition" in refused.output
    assert [path.name for path in (lab.folder / "state/marin-rules/drivers").iterdir()] == [".lock"]
    assert slurm.jobs() == []


def test_what_runs_is_the_code_of_the_submission(
    lab: Lab, drivers: Drivers, waiting: Path, slurm: SlurmCluster
) -> None:
    for node in ("gpu1", "gpu2"):
        slurm.set_down(node)
    name = drivers.submit(waiting)
    waiting.write_text("raise RuntimeError('edited')")
    for node in ("gpu1", "gpu2"):
        slurm.resume(node)
    lab.wait_until(lambda: attempts(lab), "the step to run")
    script = slurm.run("scontrol", "write", "batch_script", jobs_of(slurm)[1].id, "-")
    lab.open_gate()
    assert drivers.wait(name).code == 0, drivers.log(name)
    kept = str(lab.folder / "state" / "marin-rules" / "code")
    assert re.search(rf"Using profiles {kept}\S+ and workflow specific profile {kept}", drivers.log(name))
    assert re.search(rf"source {kept}\S+/run-step", script), "the package was kept, too"


def test_hand_written_rules_must_be_what_they_were(
    lab: Lab, drivers: Drivers, waiting: Path, slurm: SlurmCluster
) -> None:
    rules = waiting.with_suffix(".smk")
    rules.write_text("# none yet\n")
    for node in ("gpu1", "gpu2"):
        slurm.set_down(node)
    name = drivers.submit(waiting)
    rules.write_text("raise RuntimeError('edited')\n")
    for node in ("gpu1", "gpu2"):
        slurm.resume(node)
    assert drivers.wait(name).code == 1
    assert f"{rules} was edited after the submission" in drivers.log(name)


def test_values_of_variables_are_seen_by_nobody_else(lab: Lab, drivers: Drivers, slurm: SlurmCluster) -> None:
    secret, own = "open-sesame-4711", "env-vars-0815"
    source = WAITING.replace("remote(far, ", 'remote(far, env_vars={"OWN": os.environ["OWN"]}, ')
    check = 'assert len(os.environ["TOKEN"]) == 16 and os.environ["OWN"]'
    experiment = lab.experiment(source.replace('open("gate").read()', f'open("gate").read(); {check}'))
    name = drivers.submit(experiment, "-e", "TOKEN", env={"TOKEN": secret, "OWN": own})
    lab.wait_until(lambda: attempts(lab), "the step to run")
    driver, step = jobs_of(slurm)
    seen = slurm.run("scontrol", "show", "job", "--details")
    seen += slurm.run("scontrol", "write", "batch_script", driver.id, "-")
    seen += slurm.run("scontrol", "write", "batch_script", step.id, "-")
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                seen += (folder / "cmdline").read_text(errors="replace")
            except OSError:
                continue
    slurm.run("scontrol", "requeue", driver.id)
    lab.wait_until(lambda: f"found  far: slurm job {step.id}" in drivers.log(name), "a new start")
    lab.open_gate()
    assert drivers.wait(name).code == 0, drivers.log(name)
    assert "came to the end, token 16" in drivers.log(name)
    found = [path for path in lab.folder.rglob("*") if path.is_file() and slurm.folder not in path.parents]
    read = {path: path.read_bytes() for path in found}
    assert len(read) > 20
    for value in (secret, own):
        assert value not in seen
        assert [path for path, data in read.items() if value.encode() in data] == []


def test_a_driver_of_python(lab: Lab, drivers: Drivers, waiting: Path, slurm: SlurmCluster) -> None:
    ran = drivers.command(
        *("submit", "--no-wait", "--cluster", "site", "--", "python", str(waiting), "--prefix", str(lab.prefix)),
        env={"SNAKEMAKE_PROFILE": str(PROFILE)},
    ).wait()
    assert ran.code == 0, ran.output
    name = Drivers.id_in(ran)
    lab.wait_until(lambda: attempts(lab), "the step to run")
    driver, step = jobs_of(slurm)
    slurm.run("scontrol", "requeue", driver.id)
    lab.wait_until(lambda: f"found  far: slurm job {step.id}" in drivers.log(name), "a new start")
    lab.open_gate()
    assert drivers.wait(name).code == 0, drivers.log(name)
    assert attempts(lab) == [step.id]
    listed = json.loads(drivers.command("jobs", "list", "--json").wait().output)
    assert [found["state"] for found in listed["drivers"]] == ["ENDED (exit code 0)"]


def test_a_step_beside_the_driver_ends_with_it_and_runs_again(lab: Lab, drivers: Drivers, slurm: SlurmCluster) -> None:
    source = WAITING.replace('open("gate").read()', "pass").replace(
        'print("came to the end', 'far(config); open("gate").read(); print("came to the end'
    )
    name = drivers.submit(lab.experiment(source))
    lab.wait_until(lambda: list(lab.prefix.glob("near-*/attempts")), "the step beside the driver")
    (driver,) = [job for job in slurm.jobs() if ":far-" not in job.comment]
    slurm.run("scontrol", "requeue", driver.id)
    lab.wait_until(
        lambda: f"driver {name} on gpu" in drivers.log(name) and "started again (1)" in drivers.log(name), "it"
    )
    (path,) = lab.prefix.glob("near-*/attempts")
    lab.wait_until(lambda: path.read_text().split() == [driver.id, driver.id], "the next attempt")
    lab.open_gate()
    assert drivers.wait(name).code == 0, drivers.log(name)
    assert len(attempts(lab)) == 1


def test_the_tutorial_of_array_steps_is_submitted_from_a_shell_that_closes(
    lab: Lab, drivers: Drivers, slurm: SlurmCluster
) -> None:
    tutorial = REPOSITORY / "experiments" / "tutorials" / "word_count.py"
    shell = drivers.command("submit", "--", *drivers.snakemake(tutorial))
    shell.wait_for(lambda: "start  word_count/text" in shell.output, "the driver runs")
    driver = drivers.id_in(Result(0, shell.output, 0.0))
    os.killpg(shell.pid, signal.SIGHUP)  # What closing a terminal does.
    shell.process.wait()
    ended = drivers.wait(driver)
    assert ended.code == 0, drivers.log(driver)
    total = json.loads((lab.folder_of("word_count/total") / ".artifact.json").read_text())
    assert total["words"] == 200 * 20_000
    arrays = [word for call in slurm.calls("sbatch") for word in call if word.startswith("--array=")]
    assert arrays == ["--array=0-15"]
