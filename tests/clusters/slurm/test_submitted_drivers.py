"""`marin-rules submit` on a real Slurm: drivers that are jobs, and what goes wrong with them.

What happens to drivers on one machine is in tests/commands/test_submit.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from support.lab import REPOSITORY, Lab
from support.slurm.cluster import SlurmCluster
from support.slurm.jobs import Job
from support.submitted_drivers import FAR_AND_NEAR, Drivers, shut_gate

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


@pytest.fixture
def drivers(lab: Lab, on_slurm: dict[str, str], cluster_file: Callable[[str], str]) -> Drivers:
    return Drivers(lab, on_slurm, options=("--profile", str(PROFILE)), config=(f"cluster={cluster_file(SITE)}",))


@pytest.fixture
def waiting(lab: Lab) -> Path:
    """The first step waits at the gate."""
    shut_gate(lab, "far")
    return lab.experiment(FAR_AND_NEAR)


def jobs_of(slurm: SlurmCluster) -> tuple[Job, Job]:
    """The job of the driver, and that of the step."""
    jobs = {
        ("step" if ":far-" in job.comment else "driver"): job for job in slurm.jobs() if "marin-rules" in job.comment
    }
    return jobs["driver"], jobs["step"]


def test_a_run_ends_in_results_though_the_shell_that_submitted_it_is_gone(
    lab: Lab, drivers: Drivers, waiting: Path, slurm: SlurmCluster
) -> None:
    shell = drivers.start("submit", "--name", "mine", "--", *drivers.snakemake(waiting))
    shell.wait_for(lambda: drivers.attempts("far"), "the step to run")
    os.killpg(shell.pid, signal.SIGKILL)  # As the login node goes away.
    listing = drivers.listing()
    driver, step = jobs_of(slurm)
    assert re.search(rf"^experiment-\S+ +mine +slurm {driver.id} +RUNNING +gpu[12] ", listing, re.MULTILINE), listing
    assert re.search(rf"^far +slurm {step.id} +RUNNING ", listing, re.MULTILINE), listing
    followed = drivers.start("jobs", "logs", "-f", "mine")
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
    name = drivers.submit(*drivers.snakemake(waiting))
    lab.wait_until(lambda: drivers.attempts("far"), "the step to run")
    lab.wait_until(lambda: "start  far" in drivers.printed(name), "a word about its start")
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
        os.kill(drivers.engine(), signal.SIGKILL)
    lab.wait_until(
        lambda: f"found  far: slurm job {step.id} of {name} already has this step" in drivers.printed(name),
        "a new start",
    )
    lab.open_gate()
    waited = drivers.wait(name)
    assert waited.code == 0, drivers.log(name)
    assert drivers.attempts("far") == [step.id], "the step's job was left alone and taken up"
    assert [lab.status_of(step) for step in ("far", "near")] == ["SUCCESS", "SUCCESS"]
    assert len(slurm.calls("sbatch")) == 2
    assert slurm.job(driver.id).restarts == (0 if how == "engine killed" else 1)


@pytest.mark.parametrize("how", ["scancel", "jobs stop"])
def test_a_driver_that_a_person_ends_takes_its_jobs_along(
    how: str, lab: Lab, drivers: Drivers, waiting: Path, slurm: SlurmCluster
) -> None:
    name = drivers.submit(*drivers.snakemake(waiting))
    lab.wait_until(lambda: drivers.attempts("far"), "the step to run")
    lab.wait_until(lambda: "start  far" in drivers.printed(name), "a word about its start")
    driver, step = jobs_of(slurm)
    if how == "scancel":
        slurm.run("scancel", driver.id)
    else:
        stopped = drivers.run("jobs", "stop", name)
        assert stopped.code == 0, stopped.output
        assert f"stopped driver {name}" in stopped.output
    assert drivers.wait(name).code != 0
    assert slurm.wait_for_state(step.id, "CANCELLED", "FAILED")
    lease = lab.folder_of("far") / ".executor_status.lock"
    lab.wait_until(lambda: not lease.exists(), "the lease to be free")
    assert lab.status_of("far") == "CANCELLED"
    assert drivers.listing() == "nothing is running or queued\n"
    again = drivers.run("jobs", "stop", name)
    assert again.code == 1
    assert f"driver {name} has ended already" in again.output


def test_a_driver_is_stopped_before_it_has_begun(
    lab: Lab, drivers: Drivers, waiting: Path, slurm: SlurmCluster
) -> None:
    for node in ("gpu1", "gpu2"):
        slurm.set_down(node)
    name = drivers.submit(*drivers.snakemake(waiting))
    listing = drivers.listing()
    assert re.search(rf"^{name} +- +slurm \d+ +PENDING ", listing, re.MULTILINE), listing
    assert drivers.run("jobs", "stop", name).code == 0
    assert drivers.wait(name).code == 130
    assert not lab.prefix.exists()


def test_two_drivers_of_one_experiment_do_each_step_once(
    lab: Lab, drivers: Drivers, waiting: Path, slurm: SlurmCluster
) -> None:
    one = drivers.submit(*drivers.snakemake(waiting), options=("--name", "one"))
    taken = drivers.run("submit", "--no-wait", "--name", "one", "--", *drivers.snakemake(waiting))
    assert taken.code == 1
    assert f"the name one is taken: driver {one} has it" in taken.output
    other = drivers.submit(*drivers.snakemake(waiting))
    for name in (one, other):
        lab.wait_until(
            lambda name=name: re.search("start  far|found  far", drivers.printed(name)), f"{name} at the step"
        )
    lab.open_gate()
    assert [drivers.wait(name).code for name in ("one", other)] == [0, 0]
    assert len(drivers.attempts("far")) == 1


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
    name = drivers.submit(*drivers.snakemake(waiting), env=env)
    lab.open_gate()
    assert drivers.wait(name).code == 0
    assert len([job for job in slurm.jobs() if ":far-" not in job.comment]) == 1


def test_a_submission_that_is_refused_leaves_nothing(
    lab: Lab, drivers: Drivers, waiting: Path, cluster_file: Callable[[str], str], slurm: SlurmCluster
) -> None:
    cluster_file(SITE.replace("spare", "nosuch"))
    refused = drivers.run("submit", "--", *drivers.snakemake(waiting))
    assert refused.code == 1
    assert "invalid partition" in refused.output
    assert [path.name for path in drivers.folder.iterdir()] == [".lock"]
    assert slurm.jobs() == []


def test_what_runs_is_the_code_of_the_submission(
    lab: Lab, drivers: Drivers, waiting: Path, slurm: SlurmCluster
) -> None:
    for node in ("gpu1", "gpu2"):
        slurm.set_down(node)
    name = drivers.submit(*drivers.snakemake(waiting))
    waiting.write_text("raise RuntimeError('edited')")
    for node in ("gpu1", "gpu2"):
        slurm.resume(node)
    lab.wait_until(lambda: drivers.attempts("far"), "the step to run")
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
    name = drivers.submit(*drivers.snakemake(waiting))
    rules.write_text("raise RuntimeError('edited')\n")
    for node in ("gpu1", "gpu2"):
        slurm.resume(node)
    assert drivers.wait(name).code == 1
    assert f"{rules} was edited after the submission" in drivers.log(name)


def test_values_of_variables_are_seen_by_nobody_else(lab: Lab, drivers: Drivers, slurm: SlurmCluster) -> None:
    secret, own = "open-sesame-4711", "env-vars-0815"
    source = FAR_AND_NEAR.replace("remote(far, ", 'remote(far, env_vars={"OWN": os.environ["OWN"]}, ')
    check = 'assert len(os.environ["TOKEN"]) == 16 and os.environ["OWN"]'
    experiment = lab.experiment(source.replace('attempt("far", config)', f'attempt("far", config); {check}'))
    shut_gate(lab, "far")
    variables = {"TOKEN": secret, "OWN": own}
    name = drivers.submit(*drivers.snakemake(experiment), options=("-e", "TOKEN"), env=variables)
    lab.wait_until(lambda: drivers.attempts("far"), "the step to run")
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
    lab.wait_until(lambda: f"found  far: slurm job {step.id}" in drivers.printed(name), "a new start")
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
    name = drivers.submit(
        *("python", waiting, "--prefix", lab.prefix),
        options=("--cluster", "site"),
        env={"SNAKEMAKE_PROFILE": str(PROFILE)},
    )
    lab.wait_until(lambda: drivers.attempts("far"), "the step to run")
    driver, step = jobs_of(slurm)
    slurm.run("scontrol", "requeue", driver.id)
    lab.wait_until(lambda: f"found  far: slurm job {step.id}" in drivers.printed(name), "a new start")
    lab.open_gate()
    assert drivers.wait(name).code == 0, drivers.log(name)
    assert drivers.attempts("far") == [step.id]
    listed = json.loads(drivers.run("jobs", "list", "--json").output)
    assert [found["state"] for found in listed["drivers"]] == ["ENDED (exit code 0)"]


def test_a_step_beside_the_driver_ends_with_it_and_runs_again(lab: Lab, drivers: Drivers, slurm: SlurmCluster) -> None:
    shut_gate(lab, "near")
    name = drivers.submit(*drivers.snakemake(lab.experiment(FAR_AND_NEAR)))
    lab.wait_until(lambda: drivers.attempts("near"), "the step beside the driver")
    (driver,) = [job for job in slurm.jobs() if ":far-" not in job.comment]
    slurm.run("scontrol", "requeue", driver.id)
    lab.wait_until(
        lambda: re.search(rf"driver {name} on gpu.*started again \(1\)", drivers.printed(name), re.DOTALL),
        "a new start",
    )
    lab.wait_until(lambda: drivers.attempts("near") == [driver.id, driver.id], "the next attempt")
    lab.open_gate()
    assert drivers.wait(name).code == 0, drivers.log(name)
    assert len(drivers.attempts("far")) == 1


def test_the_tutorial_of_array_steps_is_submitted_from_a_shell_that_closes(
    lab: Lab, drivers: Drivers, slurm: SlurmCluster
) -> None:
    tutorial = REPOSITORY / "experiments" / "tutorials" / "word_count.py"
    shell = drivers.start("submit", "--", *drivers.snakemake(tutorial))
    shell.wait_for(lambda: "start  word_count/text" in shell.output, "the driver runs")
    driver = drivers.id_in(shell.output)
    os.killpg(shell.pid, signal.SIGHUP)  # What closing a terminal does.
    shell.process.wait()
    ended = drivers.wait(driver)
    assert ended.code == 0, drivers.log(driver)
    total = json.loads((lab.folder_of("word_count/total") / ".artifact.json").read_text())
    assert total["words"] == 200 * 20_000
    arrays = [word for call in slurm.calls("sbatch") for word in call if word.startswith("--array=")]
    assert arrays == ["--array=0-15"]
