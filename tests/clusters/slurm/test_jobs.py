"""`marin-rules jobs` on a real Slurm: what is queued and what runs, its logs, and how it is ended."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin_rules.clusters.protocol import ArrayTasks, JobTag
from support.lab import Lab, Result, Running
from support.slurm.cluster import SlurmCluster

WAITING = """
    import signal
    from marin_rules import *

    def wait(config):
        print("here", flush=True)
        signal.pause()

    resources = ResourceConfig(ram="300m", replicas={replicas})
    steps = [ExecutorStep(name, remote(wait, resources=resources), {}) for name in ("first", "second")]
    if __name__ == "__main__":
        executor_main(steps=steps)
    """


@pytest.fixture
def start_jobs(lab: Lab, on_slurm: dict[str, str]) -> Callable[..., Running]:
    """`start_jobs("list")` starts `marin-rules jobs list` where the test cluster is, and does not wait."""
    program = Path(sys.executable).with_name("marin-rules")
    return lambda *arguments: lab.start([program, "jobs", *arguments], env=on_slurm)


@pytest.fixture
def jobs(start_jobs: Callable[..., Running]) -> Callable[..., Result]:
    """`jobs("list")` runs `marin-rules jobs list` to its end."""
    return lambda *arguments: start_jobs(*arguments).wait()


@pytest.fixture
def listed(jobs: Callable[..., Result]) -> Callable[[], dict[str, Any]]:
    """The steps that `marin-rules jobs list --json` shows, by their names."""

    def read() -> dict[str, Any]:
        result = jobs("list", "--json")
        assert result.code == 0, result.output
        return {step["step"]: step for step in json.loads(result.output)["steps"]}

    return read


@pytest.fixture
def waiting_run(lab: Lab, start_on_slurm: Callable[..., Running]) -> Callable[..., Running]:
    """`waiting_run()` starts two steps that wait for ever, each in its own job, and returns when both run.

    With `one_node`, only one of them runs; the other waits for its node. `replicas` is how many nodes each asks for.
    """

    def launch(*, one_node: bool = False, replicas: int = 1) -> Running:
        node = ["--set-resources", "wait:slurm_extra=--exclusive --nodelist=cpu1"] if one_node else []
        run = start_on_slurm(*node, experiment=lab.experiment(WAITING.replace("{replicas}", str(replicas))))
        run.wait_for(lambda: run.output.count("queue  ") == 2, "both jobs in the queue")
        logs = 1 if one_node else 2
        own = [".executor_log"] if replicas == 1 else [f".executor_log.rank-{rank}" for rank in range(replicas)]
        for name in own:
            run.wait_for(lambda name=name: _count(lab.prefix, name, "here") == logs, "the steps to wait")
        run.wait_for(lambda: _count(lab.prefix, ".executor_info", '"started"') == logs, "what their workers write down")
        return run

    return launch


def _count(prefix: Path, name: str, text: str) -> int:
    return sum(text in path.read_text() for path in prefix.glob(f"*/{name}"))


def _leases(prefix: Path) -> list[Path]:
    return list(prefix.rglob(".executor_status.lock"))


def test_queued_and_running_jobs_are_listed_followed_and_stopped(
    waiting_run: Callable[..., Running],
    slurm: SlurmCluster,
    jobs: Callable[..., Result],
    listed: Callable[[], dict[str, Any]],
    start_jobs: Callable[..., Running],
    lab: Lab,
) -> None:
    run = waiting_run(one_node=True)
    by_state = {job.state: job for job in slurm.jobs()}
    running, queued = by_state["RUNNING"], by_state["PENDING"]
    table = jobs("list").output
    assert re.search(rf"^{running.name} +slurm {running.id} +RUNNING +cpu1 +[\d.]+s +1 +experiment-", table, re.M)
    assert re.search(rf"^{queued.name} +slurm {queued.id} +PENDING \(\w+\) +- +- +1 +experiment-", table, re.M), table
    steps = listed()
    assert (steps[running.name]["slurm_job"], steps[running.name]["state"]) == (running.id, "RUNNING")
    assert (steps[queued.name]["slurm_job"], steps[queued.name]["state"]) == (queued.id, "PENDING")
    assert steps[running.name]["output_path"] == str(lab.folder_of(running.name))
    assert table.endswith(": 0 steps done, 2 left\n")

    no_log = jobs("logs", queued.name)
    assert no_log.code == 1
    assert f"{queued.name} has written no log yet: slurm job {queued.id} is PENDING (" in no_log.output
    follower = start_jobs("logs", "-f", queued.name)
    follower.wait_for(lambda: "has written no log yet" in follower.output, "it waits for the log")

    stopped = jobs("stop", running.name)
    assert stopped.code == 0, stopped.output
    assert stopped.output.endswith(f"stopped {running.name}: CANCELLED\n")
    assert lab.status_of(running.name) == "CANCELLED"
    assert not (lab.folder_of(running.name) / ".executor_status.lock").exists()
    assert slurm.job(running.id).state == "CANCELLED"

    follower.wait_for(lambda: "\nhere\n" in follower.output, "the other one to start")
    assert jobs("stop", queued.name).code == 0
    result = follower.wait()
    assert result.code == 0
    assert result.output.endswith(f"marin-rules: step {queued.name}: CANCELLED\n")

    told = run.wait()
    assert told.code == 1
    for name in (running.name, queued.name):
        assert re.search(rf"^[\d:]+ stopped {name} after ", told.output, re.M), told.output
    assert len(slurm.calls("sbatch")) == 2  # Nothing was tried again.
    assert _leases(lab.prefix) == []
    assert jobs("list").output == "nothing is running or queued\n"


def test_a_job_that_is_stopped_in_the_queue_leaves_a_cancelled_step(
    waiting_run: Callable[..., Running],
    slurm: SlurmCluster,
    jobs: Callable[..., Result],
    listed: Callable[[], dict[str, Any]],
    lab: Lab,
) -> None:
    run = waiting_run(one_node=True)
    running, queued = sorted(slurm.jobs(), key=lambda job: job.state, reverse=True)
    assert lab.status_of(queued.name) is None
    stopped = jobs("stop", queued.name)
    assert stopped.code == 0, stopped.output
    assert stopped.output.endswith(f"stopped {queued.name}: CANCELLED\n")
    assert lab.status_of(queued.name) == "CANCELLED"
    assert list(listed()) == [running.name]

    run_id = listed()[running.name]["run"]
    stopped = jobs("stop", run_id)
    assert stopped.code == 0, stopped.output
    assert stopped.output.endswith(f"stopped {running.name}: CANCELLED\nstopped run {run_id}\n")
    assert run.wait().code == 1
    assert lab.status_of(running.name) == "CANCELLED"
    assert {job.state for job in slurm.jobs()} == {"CANCELLED"}
    assert _leases(lab.prefix) == []
    assert jobs("list").output == "nothing is running or queued\n"


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_jobs_that_outlive_their_driver_are_shown_and_can_be_stopped(
    is_forgotten: bool,
    waiting_run: Callable[..., Running],
    slurm: SlurmCluster,
    jobs: Callable[..., Result],
    listed: Callable[[], dict[str, Any]],
    lab: Lab,
    tmp_path: Path,
) -> None:
    replicas = 1 if is_forgotten else 2
    run = waiting_run(replicas=replicas)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    (file,) = (tmp_path / "state" / "marin-rules" / "runs").iterdir()
    if is_forgotten:
        file.unlink()
    assert jobs("list").output.count("RUNNING (driver gone)") == 2
    assert [step["driver_gone"] for step in listed().values()] == [True, True]
    run_id = listed()["first"]["run"]
    if replicas == 2:
        assert {step["node"] for step in listed().values()} == {"cpu[1-2]"}
        assert jobs("logs", "first", "--rank", "1").output == "here\n"
    assert jobs("stop", "first").code == 0
    assert jobs("stop", run_id).code == 0
    assert {job.state for job in slurm.jobs()} == {"CANCELLED"}
    assert [lab.status_of("first"), lab.status_of("second")] == ["CANCELLED", "CANCELLED"]
    assert _leases(lab.prefix) == []
    assert jobs("list").output == "nothing is running or queued\n"
    assert not file.exists()


def test_a_step_whose_node_lost_its_power_is_stopped_once_its_lease_has_expired(
    waiting_run: Callable[..., Running], slurm_with_hosts: SlurmCluster, jobs: Callable[..., Result], lab: Lab
) -> None:
    run = waiting_run()
    job = next(job for job in slurm_with_hosts.jobs() if job.name == "first")
    slurm_with_hosts.kill_node(job.nodes)
    stopped = jobs("stop", "first")
    assert stopped.code == 0, stopped.output
    assert "its worker could not give its lease back, waiting for it to expire" in stopped.output
    assert lab.status_of("first") == "CANCELLED"
    assert not list(lab.prefix.glob("first-*/.executor_status.lock"))
    run.wait_for(lambda: f"slurm job {job.id} was cancelled" in run.output, "the driver to be told")
    slurm_with_hosts.start_node(job.nodes)


def test_an_array_is_listed_in_one_row_and_stopped_as_a_whole(
    slurm: SlurmCluster, jobs: Callable[..., Result], listed: Callable[[], dict[str, Any]]
) -> None:
    tag = JobTag("gone-20261118-000000-abcdef", "count-1a2b3c", "0123456789ab", ArrayTasks(1, 0))
    number = slurm.submit("exec sleep 600", "--array=0-299%3", "--mem=50", f"--comment={tag}")
    slurm.wait_for(lambda: sum(job.state == "RUNNING" for job in slurm.jobs()) == 3, "three elements to run")
    head, row = jobs("list").output.splitlines()
    assert head.startswith("step")
    assert re.match(rf"count +slurm {number} +3 RUNNING, 297 PENDING \(driver gone\) +cpu1 ", row), row
    assert (listed()["count"]["slurm_job"], listed()["count"]["elements"]) == (number, {"RUNNING": 3, "PENDING": 297})
    stopped = jobs("stop", "count")
    assert stopped.code == 0, stopped.output
    assert stopped.output == f"marin-rules: stopping count: cancelled slurm job {number}\nstopped count\n"
    assert slurm.calls("scancel") == [["--quiet", f"{number}_[0-299]"]]
    assert {job.state for job in slurm.jobs()} == {"CANCELLED"}
    assert jobs("list").output == "nothing is running or queued\n"


def test_a_run_on_this_machine_beside_one_on_the_cluster(
    waiting_run: Callable[..., Running], slurm: SlurmCluster, jobs: Callable[..., Result], lab: Lab
) -> None:
    """The same experiment below another prefix: neither is taken for the other."""
    waiting_run()
    elsewhere = lab.folder / "local"
    local = lab.start_snakemake("-j", "2", experiment=lab.folder / "experiment.py", prefix=elsewhere)
    local.wait_for(lambda: _count(elsewhere, ".executor_log", "here") == 2, "the local steps to wait")
    local.wait_for(lambda: _count(elsewhere, ".executor_info", '"started"') == 2, "what their workers write down")
    steps = json.loads(jobs("list", "--json").output)["steps"]
    by_place = {(Path(step["output_path"]).parent.name, step["step"]): step for step in steps}
    assert {key: (step["slurm_job"] is None, step["pid"] is None) for key, step in by_place.items()} == {
        ("out", "first"): (False, False), ("out", "second"): (False, False),
        ("local", "first"): (True, False), ("local", "second"): (True, False),
    }  # fmt: skip
    assert "may be one of several steps" in jobs("stop", "first").output
    stopped = jobs("stop", by_place["local", "first"]["run"])
    assert stopped.code == 0, stopped.output
    assert local.wait().code != 0
    assert {path.read_text() for path in elsewhere.glob("*/.executor_status")} == {"CANCELLED"}
    assert (lab.status_of("first"), lab.status_of("second")) == ("RUNNING", "RUNNING")
    assert {job.state for job in slurm.jobs()} == {"RUNNING"}


def test_what_runs_is_shown_while_slurm_does_not_answer(
    waiting_run: Callable[..., Running], slurm: SlurmCluster, jobs: Callable[..., Result], lab: Lab
) -> None:
    waiting_run()
    with slurm.broken("squeue", "fails"):
        result = jobs("list")
        assert result.code == 0
        assert result.output.startswith("marin-rules: cannot list the jobs of slurm: squeue failed")
        assert re.search(r"^first +pid \d+ +RUNNING +\S+ +[\d.]+s +1 +experiment-", result.output, re.M), result.output
        stopped = jobs("stop", "first")
        assert stopped.code == 1
        assert "Slurm does not answer: try again later" in stopped.output
    assert lab.status_of("first") == "RUNNING"
    assert {job.state for job in slurm.jobs()} == {"RUNNING"}
