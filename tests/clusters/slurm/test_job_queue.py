"""Slurm's queue behind the protocol of all clusters."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from marin_rules.clusters.open import CLUSTER_NAMES, clusters_here, open_cluster
from marin_rules.clusters.protocol import (
    JOB,
    BusyError,
    ClusterJob,
    JobQueue,
    JobRequest,
    JobState,
    JobTag,
    RefusedError,
)
from marin_rules.clusters.slurm.states import state_of
from marin_rules.errors import SettingsError
from support.slurm.cluster import SlurmCluster

STATES = {
    JobState.WAITING: "PENDING CONFIGURING POWER_UP_NODE REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT"
    " EXPEDITING A_STATE_OF_TOMORROW",
    JobState.RUNNING: "RUNNING RESIZING SIGNALING",
    JobState.SUSPENDED: "SUSPENDED STOPPED",
    JobState.ENDING: "COMPLETING STAGE_OUT",
    JobState.DONE: "COMPLETED",
    JobState.FAILED: "FAILED",
    JobState.OUT_OF_MEMORY: "OUT_OF_MEMORY",
    JobState.TIMED_OUT: "TIMEOUT DEADLINE",
    JobState.CANCELLED: "CANCELLED",
    JobState.INTERRUPTED: "PREEMPTED NODE_FAIL BOOT_FAIL LAUNCH_FAILED RECONFIG_FAIL REVOKED",
}


@pytest.mark.parametrize(("state", "words"), STATES.items(), ids=lambda value: str(value).split(".")[-1])
def test_every_state_of_slurm_has_a_neutral_one(state: JobState, words: str) -> None:
    assert {state_of(word) for word in words.split()} == {state}


def test_each_neutral_state_is_either_an_end_or_alive() -> None:
    live = {state for state in JobState if state.is_live}
    assert live == {JobState.WAITING, JobState.RUNNING, JobState.SUSPENDED, JobState.ENDING}
    assert set(STATES) == set(JobState)


@pytest.fixture
def queue(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> JobQueue:
    """The queue of the test cluster, as a driver finds it."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    return open_cluster("slurm").open_queue(None)


def request(slurm: SlurmCluster, folder: Path, script: str, **fields: object) -> JobRequest:
    variables: Mapping[str, str] = {**slurm.environment, "GREETING": "hello"}
    log = str(folder / "100%" / f"{JOB}.log")
    defaults = {"name": "a", "variables": variables, "folder": str(folder), "log": log, "resources": {"mem_mb": 300}}
    return JobRequest(script=script, **{**defaults, **fields})  # type: ignore[arg-type]


def end_of(queue: JobQueue, slurm: SlurmCluster, number: str) -> ClusterJob:
    slurm.wait_for(lambda: not queue.look([number])[number].is_live, f"the end of job {number}")
    return queue.look([number])[number]


def test_a_job_is_found_by_its_tag_and_ends_with_its_exit_code(
    queue: JobQueue, slurm: SlurmCluster, tmp_path: Path
) -> None:
    tag = JobTag.of("run", "train/base-1a2b3c", "/out")
    asked = request(slurm, tmp_path, 'echo "$GREETING"; pwd; exit 75', tag=tag)
    number = queue.submit(asked)
    assert queue.jobs()[number].tag == tag
    job = end_of(queue, slurm, number)
    assert (job.cluster, job.state, job.word, job.exit_code) == ("slurm", JobState.FAILED, "FAILED", 75)
    assert Path(queue.log_of(asked.log, number)).read_text().split() == ["hello", str(tmp_path)]


def test_a_job_that_a_signal_ended_has_no_exit_code(queue: JobQueue, slurm: SlurmCluster, tmp_path: Path) -> None:
    job = end_of(queue, slurm, queue.submit(request(slurm, tmp_path, "kill -9 $$")))
    assert (job.state, job.exit_code) == (JobState.FAILED, None)


def test_a_job_that_waits_for_ever_comes_with_advice_and_can_be_cancelled(
    queue: JobQueue, slurm: SlurmCluster, tmp_path: Path
) -> None:
    number = queue.submit(request(slurm, tmp_path, "true", resources={"slurm_extra": "--hold"}))
    job = queue.look([number])[number]
    assert (job.state, job.reason) == (JobState.WAITING, "JobHeldUser")
    assert f"`scontrol release {number}` releases it" in (queue.advice(job) or "")
    assert queue.cancel_command([number, "8"]) == f"scancel {number} 8"
    queue.cancel([number])
    assert end_of(queue, slurm, number).state is JobState.CANCELLED
    queue.cancel([number])  # It has ended already.


def test_what_nothing_knows_of_is_left_out(queue: JobQueue) -> None:
    assert "4711" not in queue.look(["4711"])
    assert queue.look([]) == {}


def test_refusals_and_silence_are_told_apart(queue: JobQueue, slurm: SlurmCluster, tmp_path: Path) -> None:
    wrong = request(slurm, tmp_path, "true", resources={"slurm_partition": "nowhere"})
    with pytest.raises(RefusedError, match="invalid partition"):
        queue.submit(wrong)
    with slurm.broken("squeue", "fails"), pytest.raises(BusyError):
        queue.jobs()


def test_clusters_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [open_cluster(name).name for name in CLUSTER_NAMES] == list(CLUSTER_NAMES)
    assert open_cluster("slurm-drmaa").name == "slurm"
    with pytest.raises(SettingsError, match="no cluster 'nowhere'; there are slurm"):
        open_cluster("nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    assert clusters_here(None) == []
