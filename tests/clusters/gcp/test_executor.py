"""The one executor of all clusters with the queue of Google Batch: real jobs on the emulator, a Snakemake of few words.

Nothing between the two knows which cluster it is. Jobs and their driver share a disk here.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marin_rules.clusters.gcp.calls import Calls
from marin_rules.clusters.gcp.job_queue import BatchQueue
from marin_rules.clusters.gcp.site import GcpSite
from marin_rules.state.status import Status, status_path
from support.emulators.batch.clients import batch_client
from support.emulators.batch.emulator import QUOTA_SHORTAGE, BatchEmulator
from support.emulators.waiting import wait
from support.fake_cluster import ClusterWorld, Driver

SITE = GcpSite("lab", "emulated", ("us-central1",))
SPOT = {"gcp_region": "us-central1", "gcp_provisioning": "SPOT", "gcp_machine_type": "e2-standard-4"}
KEPT = frozenset(("HOME", "PATH", "PYTHONPATH", "USER"))


class BatchWorld(ClusterWorld):
    """Drivers whose cluster is Google Batch."""

    def start(self, script: str, **settings: Any) -> Driver:
        """A driver of one step, `train`, whose job runs these lines of shell."""
        driver = self.driver("train", **settings)
        driver.jobs["train"].shellcmd = script
        driver.jobs["train"].resources = dict(SPOT)
        return driver


@pytest.fixture
def world(batch: BatchEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchWorld]:
    for name in set(os.environ) - KEPT:
        monkeypatch.delenv(name)  # Jobs get some of them, and secrets are refused.
    for service in ("BATCH", "LOGGING"):
        monkeypatch.setenv(f"{service}_EMULATOR_HOST", batch.address)
    found = BatchWorld(tmp_path, monkeypatch)
    queue: Any = BatchQueue(SITE, owner="ann", calls=Calls(retry_seconds=1))
    found.cluster = queue
    yield found
    queue.close()


def success_of(driver: Driver) -> str:
    """Shell that does what the worker of the step does at its end."""
    [step] = driver.plan.steps
    folder = shlex.quote(step.output_path)
    return f"mkdir -p {folder}; printf {Status.SUCCESS.value} > {shlex.quote(status_path(step.output_path))}"


def over(driver: Driver) -> tuple[list[str], list[str]]:
    """What came of the steps, once nothing is waited for."""
    wait(driver.look, lambda names: not names)
    return driver.results


def created(batch: BatchEmulator) -> list[str]:
    return [call.request["jobId"] for call in batch.calls("CreateJob")]


def running(batch: BatchEmulator) -> None:
    wait(batch.processes, lambda pids: bool(pids))


def test_a_step_is_done_when_its_job_ends_well_and_its_status_says_so(world: BatchWorld, batch: BatchEmulator) -> None:
    driver = world.start("")
    driver.jobs["train"].shellcmd = success_of(driver)
    driver.submit("train")
    assert over(driver) == (["train"], [])
    [number] = created(batch)
    assert f"queue  train: gcp job {number}, 3 cores" in driver.said


def test_a_failed_job_is_a_failed_step_and_told_with_its_last_lines(world: BatchWorld, batch: BatchEmulator) -> None:
    driver = world.start("echo trying; echo in vain >&2; exit 3")
    driver.submit("train")
    assert over(driver) == ([], ["train"])
    [number] = created(batch)
    assert "failed on us-central1-" in driver.failures[0]
    assert driver.failures[0].endswith(f"/jobs/{number}/logs?project=emulated, at last:\n    trying\n    in vain")


def test_a_preempted_job_is_submitted_again_and_costs_no_retry(world: BatchWorld, batch: BatchEmulator) -> None:
    driver = world.start("")
    driver.jobs["train"].shellcmd = f"mkdir first && exec sleep 60; {success_of(driver)}"
    driver.submit("train")
    wait((world.folder / "first").exists, bool)
    [number] = created(batch)
    batch.preempt(number)
    assert over(driver) == (["train"], [])
    assert created(batch) == [number, f"{number[:-1]}2"]
    assert any(f"gcp job {number} was PREEMPTED (50001) on us-central1-" in line for line in driver.said)
    assert driver.jobs["train"].attempt == 1


def test_a_job_that_lost_one_of_its_machines_is_submitted_again_whatever_the_others_said(
    world: BatchWorld, batch: BatchEmulator
) -> None:
    driver = world.start("")
    job = driver.jobs["train"]
    job.resources = {**SPOT, "nodes": 2}
    first = "mkdir first.$BATCH_TASK_INDEX && { until [ -e lost ]; do sleep 0.1; done; exit 1; }"
    job.shellcmd = f"{first}; {success_of(driver)}"
    driver.submit("train")
    wait(lambda: len(list(world.folder.glob("first.*"))), lambda count: count == 2)
    [number] = created(batch)
    batch.preempt(number, task=1)
    (world.folder / "lost").touch()
    assert over(driver) == (["train"], [])
    assert any(f"gcp job {number} was PREEMPTED (50001)" in line for line in driver.said)


def test_too_many_preemptions_are_the_end(world: BatchWorld, batch: BatchEmulator) -> None:
    driver = world.start("exec sleep 60", max_interruptions=1)
    driver.submit("train")
    for count in (1, 2):
        wait(lambda: driver.look() and created(batch), lambda ids, count=count: len(ids or []) == count)
        running(batch)
        batch.preempt(created(batch)[-1])
        wait(driver.look, lambda names, count=count: len(created(batch)) > count or not names)
    assert driver.results == ([], ["train"])
    assert "interruptions so far: 2, allowed: 1" in driver.failures[0]


def test_a_cancelled_run_leaves_nothing_running(world: BatchWorld, batch: BatchEmulator) -> None:
    driver = world.start("exec sleep 60")
    driver.submit("train")
    running(batch)
    driver.cancel()
    wait(batch.processes, lambda pids: not pids)
    assert len(batch.calls("CancelJob")) == 1


def test_a_lost_answer_makes_no_second_job(world: BatchWorld, batch: BatchEmulator) -> None:
    batch.inject("lost", methods=["CreateJob"], times=1)
    driver = world.start("")
    driver.jobs["train"].shellcmd = success_of(driver)
    driver.submit("train")
    assert over(driver) == (["train"], [])
    assert len(set(created(batch))) == 1


def test_a_driver_that_is_started_anew_goes_on_with_the_job_of_the_one_before(
    world: BatchWorld, batch: BatchEmulator
) -> None:
    first = world.start("")
    first.jobs["train"].shellcmd = f"mkfifo gate; read line < gate; {success_of(first)}"
    first.submit("train")
    gate = world.folder / "gate"
    wait(gate.exists, bool)
    second = world.start("exit 9")
    second.submit("train")
    assert any(line.startswith("found  train: gcp job") for line in second.said)
    gate.write_text("go\n")
    assert over(second) == (["train"], [])
    assert len(created(batch)) == 1


def test_a_job_without_machines_is_told_of_with_what_to_do(world: BatchWorld, batch: BatchEmulator) -> None:
    batch.set_shortage(QUOTA_SHORTAGE)
    driver = world.start("exec sleep 60")
    driver.submit("train")

    def told() -> bool:
        driver.look()
        world.clock.time += 60
        return any("the quota CPUS of the project, 24 in us-central1," in line for line in driver.said)

    wait(told, bool)


def test_the_elements_of_an_array_step_run_as_tasks_of_one_job(world: BatchWorld, batch: BatchEmulator) -> None:
    driver = world.driver("count", tasks=3)
    job = driver.jobs["count"]
    job.resources, job.shellcmd = dict(SPOT), "touch task$BATCH_TASK_INDEX; exec sh -c 'exec sleep 60' task"
    driver.submit("count")
    wait(lambda: sorted(path.name for path in world.folder.glob("task*")), lambda names: len(names) == 3)
    assert len(created(batch)) == 1
    driver.look()
    driver.cancel()
    wait(batch.processes, lambda pids: not pids)


def name_of(batch: BatchEmulator) -> str:
    """The full name of the only job."""
    [call] = batch.calls("CreateJob")
    return f"{call.request['parent']}/jobs/{call.request['jobId']}"


def test_a_job_that_somebody_cancels_is_not_submitted_again(world: BatchWorld, batch: BatchEmulator) -> None:
    driver = world.start("exec sleep 60")
    driver.submit("train")
    running(batch)
    batch_client(batch).cancel_job(name=name_of(batch))
    assert over(driver) == ([], ["train"])
    assert "was cancelled" in driver.failures[0]
    assert len(created(batch)) == 1


def test_a_job_that_somebody_deletes_is_submitted_again_after_a_while(world: BatchWorld, batch: BatchEmulator) -> None:
    driver = world.start("")
    driver.jobs["train"].shellcmd = f"mkdir first && exec sleep 60; {success_of(driver)}"
    driver.submit("train")
    wait((world.folder / "first").exists, bool)
    batch_client(batch).delete_job(name=name_of(batch))
    wait(batch.processes, lambda pids: not pids)

    def again() -> int:
        driver.look()
        world.clock.time += 30
        return len(created(batch))

    wait(again, lambda count: count == 2)
    assert over(driver) == (["train"], [])
    assert any("is no longer known to Google Batch" in line for line in driver.said)


def test_a_job_that_ends_well_without_its_status_is_a_failure(world: BatchWorld, batch: BatchEmulator) -> None:
    driver = world.start("true")
    driver.submit("train")

    def ended() -> list[str]:
        driver.look()
        world.clock.time += 10
        return driver.failures

    wait(ended, bool)
    assert "succeeded, but the step's status does not say so" in driver.failures[0]


def test_a_minute_without_answers_changes_nothing(world: BatchWorld, batch: BatchEmulator) -> None:
    driver = world.start("")
    driver.jobs["train"].shellcmd = f"mkfifo gate; read line < gate; {success_of(driver)}"
    driver.submit("train")
    gate = world.folder / "gate"
    wait(gate.exists, bool)
    for kind in ("RESOURCE_EXHAUSTED", "UNAVAILABLE", "DEADLINE_EXCEEDED"):
        batch.inject(kind, methods=["ListJobs", "GetJob"])
        for _ in range(3):
            assert driver.look() == ["train"]
            world.clock.time += 30
        batch.clear_faults()
    gate.write_text("go\n")
    assert over(driver) == (["train"], [])
    assert len(created(batch)) == 1
