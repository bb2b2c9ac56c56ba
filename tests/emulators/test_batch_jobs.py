"""Google Batch on loopback, by Google's own client: jobs from their creation to their end."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import batch_v1
from google.cloud.batch_v1 import BatchServiceClient, JobStatus, TaskStatus

from support.emulators.batch.clients import batch_client, logging_client
from support.emulators.batch.emulator import QUOTA_SHORTAGE, BatchEmulator
from support.emulators.waiting import wait

PARENT = "projects/emulated/locations/us-central1"
GROUP = "taskGroups/group0"
SPOT = batch_v1.AllocationPolicy.ProvisioningModel.SPOT
INTERRUPTIONS = [50001, 50002, 50003, 50006]


@pytest.fixture
def client(batch: BatchEmulator) -> BatchServiceClient:
    return batch_client(batch)


def script(text: str, **spec: Any) -> batch_v1.Job:
    """A job of one task on a Spot machine."""
    runnable = batch_v1.Runnable(script=batch_v1.Runnable.Script(text=text))
    group = batch_v1.TaskGroup(task_spec=batch_v1.TaskSpec(runnables=[runnable], **spec))
    policy = batch_v1.AllocationPolicy.InstancePolicy(machine_type="e2-standard-4", provisioning_model=SPOT)
    instance = batch_v1.AllocationPolicy.InstancePolicyOrTemplate(policy=policy)
    return batch_v1.Job(task_groups=[group], allocation_policy=batch_v1.AllocationPolicy(instances=[instance]))


def create(client: BatchServiceClient, job: batch_v1.Job, job_id: str = "job", **fields: Any) -> batch_v1.Job:
    request = batch_v1.CreateJobRequest(parent=fields.pop("parent", PARENT), job=job, job_id=job_id, **fields)
    return client.create_job(request, retry=None, timeout=10)


def ended(client: BatchServiceClient, job_id: str = "job") -> batch_v1.Job:
    ends = (JobStatus.State.SUCCEEDED, JobStatus.State.FAILED, JobStatus.State.CANCELLED)
    return wait(lambda: client.get_job(name=f"{PARENT}/jobs/{job_id}"), lambda job: job.status.state in ends)


def running(client: BatchServiceClient, batch: BatchEmulator, processes: int = 1) -> None:
    """Until so many processes run on machines."""
    wait(batch.processes, lambda pids: len(pids) >= processes)


def tasks_of(client: BatchServiceClient, job_id: str = "job") -> list[batch_v1.Task]:
    return list(client.list_tasks(parent=f"{PARENT}/jobs/{job_id}/{GROUP}"))


def exit_codes(task: batch_v1.Task) -> list[int]:
    return [event.task_execution.exit_code for event in task.status.status_events if "task_execution" in event]


def states(message: Any) -> list[str]:
    return [event.task_state.name for event in message.status.status_events]


def lines(batch: BatchEmulator, job: batch_v1.Job) -> list[str]:
    found = logging_client(batch).list_log_entries(
        resource_names=["projects/emulated"], filter=f'labels.job_uid="{job.uid}"'
    )
    return [entry.text_payload for entry in found]


def test_a_job_runs_its_script_and_tells_of_each_state(batch: BatchEmulator, client: BatchServiceClient) -> None:
    created = create(
        client, script("echo $BATCH_TASK_INDEX of $BATCH_TASK_COUNT: $X", environment={"variables": {"X": "1"}})
    )
    assert created.status.state == JobStatus.State.QUEUED
    job = ended(client)
    assert job.status.state == JobStatus.State.SUCCEEDED
    assert [event.description.split(" for ")[0] for event in job.status.status_events] == [
        "Job state is set from QUEUED to SCHEDULED",
        "Job state is set from SCHEDULED to RUNNING",
        "Job state is set from RUNNING to SUCCEEDED",
    ]
    [task] = tasks_of(client)
    assert states(task) == ["PENDING", "ASSIGNED", "RUNNING", "SUCCEEDED"]
    assert "on zones/us-central1-a/instances/" in task.status.status_events[-1].description
    assert lines(batch, job) == ["0 of 1: 1"]
    assert job.status.run_duration > timedelta(0)


def test_defaults_are_filled_in(client: BatchServiceClient) -> None:
    job = create(client, script("true"))
    group = job.task_groups[0]
    assert (group.task_count, group.parallelism, group.task_spec.compute_resource.memory_mib) == (1, 1, 2000)
    assert group.name == "projects/1234567890/locations/us-central1/jobs/job/taskGroups/group0"
    assert "zones/us-central1-f" in job.allocation_policy.location.allowed_locations
    assert job.uid.startswith("job-")


def test_a_container_runs_its_command(batch: BatchEmulator, client: BatchServiceClient) -> None:
    job = script("")
    container = batch_v1.Runnable.Container(image_uri="image:1", entrypoint="/bin/sh", commands=["-c", "echo $0", "hi"])
    job.task_groups[0].task_spec.runnables = [batch_v1.Runnable(container=container)]
    create(client, job)
    assert lines(batch, ended(client)) == ["hi"]
    batch.set_missing_images("image:1")
    create(client, job, "other")
    assert ended(client, "other").status.state == JobStatus.State.FAILED


def test_a_failed_task_has_its_exit_code(client: BatchServiceClient) -> None:
    create(client, script("exit 3", max_retry_count=1))
    job = ended(client)
    assert job.status.state == JobStatus.State.FAILED
    assert job.status.status_events[-1].description.endswith('with exit code 3."')
    # Without a policy every failure is tried again.
    assert [exit_codes(task) for task in tasks_of(client)] == [[3, 3]]


def test_tasks_of_a_group_run_in_parallel_up_to_its_limit(batch: BatchEmulator, client: BatchServiceClient) -> None:
    job = script("test $BATCH_TASK_INDEX = 3 || sleep 60")
    job.task_groups[0].task_count, job.task_groups[0].parallelism = 4, 2
    create(client, job)
    counts = wait(
        lambda: dict(client.get_job(name=f"{PARENT}/jobs/job").status.task_groups["group0"].counts),
        lambda counts: counts.get("RUNNING") == 2,
    )
    assert counts == {"RUNNING": 2, "PENDING": 2}


def test_each_task_has_its_own_variables(batch: BatchEmulator, client: BatchServiceClient) -> None:
    job = script("echo $BATCH_TASK_INDEX $X")
    job.task_groups[0].task_environments = [batch_v1.Environment(variables={"X": text}) for text in ("a", "b")]
    create(client, job)
    assert sorted(lines(batch, ended(client))) == ["0 a", "1 b"]


@pytest.mark.parametrize("code", [50001, 50002, 50003, 50004, 50006])
def test_a_task_without_its_machine_fails_with_a_reserved_code(
    batch: BatchEmulator, client: BatchServiceClient, code: int
) -> None:
    create(client, script("sleep 60 & setsid sleep 60"))
    running(client, batch, 3)
    batch.lose_machine("job", code=code)
    assert ended(client).status.state == JobStatus.State.FAILED
    assert exit_codes(tasks_of(client)[0]) == [code]
    assert batch.processes() == []


def test_a_retried_task_keeps_the_event_of_its_preemption(batch: BatchEmulator, client: BatchServiceClient) -> None:
    retry = batch_v1.LifecyclePolicy.Action.RETRY_TASK
    policy = batch_v1.LifecyclePolicy(
        action=retry, action_condition=batch_v1.LifecyclePolicy.ActionCondition(exit_codes=INTERRUPTIONS)
    )
    text = "test $BATCH_TASK_RETRY_ATTEMPT = 1 || sleep 60"
    create(client, script(text, max_retry_count=2, lifecycle_policies=[policy]))
    running(client, batch)
    batch.preempt("job")
    assert ended(client).status.state == JobStatus.State.SUCCEEDED
    [task] = tasks_of(client)
    assert exit_codes(task) == [50001, 0]
    batch.set_quirks("unordered events")
    assert exit_codes(tasks_of(client)[0]) == [0, 50001]


def test_a_policy_does_not_retry_other_failures(client: BatchServiceClient) -> None:
    policy = batch_v1.LifecyclePolicy(
        action=batch_v1.LifecyclePolicy.Action.RETRY_TASK,
        action_condition=batch_v1.LifecyclePolicy.ActionCondition(exit_codes=INTERRUPTIONS),
    )
    create(client, script("exit 1", max_retry_count=2, lifecycle_policies=[policy]))
    ended(client)
    assert exit_codes(tasks_of(client)[0]) == [1]


def test_a_task_over_its_time_fails_with_50005(client: BatchServiceClient, batch: BatchEmulator) -> None:
    create(client, script("sleep 60", max_run_duration=timedelta(seconds=0.1)))
    ended(client)
    assert exit_codes(tasks_of(client)[0]) == [50005]
    assert batch.processes() == []


def test_without_quota_a_job_stays_scheduled_and_says_why(batch: BatchEmulator, client: BatchServiceClient) -> None:
    batch.set_shortage(QUOTA_SHORTAGE)
    create(client, script("true"))
    job = wait(lambda: client.get_job(name=f"{PARENT}/jobs/job"), lambda job: len(job.status.status_events) == 2)
    assert job.status.state == JobStatus.State.SCHEDULED
    assert "CODE_GCE_QUOTA_EXCEEDED" in job.status.status_events[-1].description
    batch.set_shortage(None)
    assert ended(client).status.state == JobStatus.State.SUCCEEDED


def test_cancelling_ends_running_tasks_and_leaves_the_others_unexecuted(
    batch: BatchEmulator, client: BatchServiceClient
) -> None:
    job = script("sleep 60")
    job.task_groups[0].task_count, job.task_groups[0].parallelism = 2, 1
    create(client, job)
    running(client, batch)
    operation = client.cancel_job(name=f"{PARENT}/jobs/job")
    assert ended(client).status.state == JobStatus.State.CANCELLED
    assert operation.result(timeout=10) == batch_v1.CancelJobResponse()
    assert [task.status.state for task in tasks_of(client)] == [TaskStatus.State.FAILED, TaskStatus.State.UNEXECUTED]
    assert batch.processes() == []
    with pytest.raises(exceptions.FailedPrecondition):
        client.cancel_job(name=f"{PARENT}/jobs/job")


def test_a_program_that_does_not_end_when_it_is_asked_to_is_killed(
    batch: BatchEmulator, client: BatchServiceClient
) -> None:
    batch.set_grace(0.2)
    create(client, script("trap 'echo asked' TERM; while true; do sleep 60; done"))
    running(client, batch, 2)
    client.cancel_job(name=f"{PARENT}/jobs/job")
    assert client.get_job(name=f"{PARENT}/jobs/job").status.state == JobStatus.State.CANCELLATION_IN_PROGRESS
    assert ended(client).status.state == JobStatus.State.CANCELLED
    assert batch.processes() == []


def test_a_deleted_job_is_gone_when_its_tasks_have_ended(batch: BatchEmulator, client: BatchServiceClient) -> None:
    create(client, script("sleep 60"))
    running(client, batch)
    operation = client.delete_job(name=f"{PARENT}/jobs/job")
    operation.result(timeout=10)
    assert batch.processes() == []
    with pytest.raises(exceptions.NotFound):
        client.get_job(name=f"{PARENT}/jobs/job")
    with pytest.raises(exceptions.NotFound):
        client.delete_job(name=f"{PARENT}/jobs/job")


def test_a_held_state_is_not_left(batch: BatchEmulator, client: BatchServiceClient) -> None:
    batch.hold("QUEUED")
    create(client, script("true"))
    assert tasks_of(client) == []
    assert client.get_job(name=f"{PARENT}/jobs/job").status.state == JobStatus.State.QUEUED
    batch.hold()
    assert ended(client).status.state == JobStatus.State.SUCCEEDED


def test_a_request_id_is_good_for_one_job(client: BatchServiceClient) -> None:
    identity = str(uuid.uuid4())
    first = create(client, script("true"), request_id=identity)
    assert create(client, script("true"), request_id=identity).uid == first.uid
    with pytest.raises(exceptions.AlreadyExists):
        create(client, script("true"), request_id=str(uuid.uuid4()))
    with pytest.raises(exceptions.InvalidArgument, match="no UUID"):
        create(client, script("true"), "other", request_id="mine")


def test_lists_are_filtered_by_label_ordered_and_paged(batch: BatchEmulator, client: BatchServiceClient) -> None:
    for number in range(5):
        job = script("true")
        job.labels = {"run": "a" if number < 3 else "b"}
        place = "us-east1" if number == 4 else "us-central1"
        create(client, job, f"job-{number}", parent=f"projects/emulated/locations/{place}")

    def names(**fields: Any) -> list[str]:
        request = batch_v1.ListJobsRequest(**{"parent": "projects/emulated/locations/-", **fields})
        return [job.name.rpartition("/")[2] for job in client.list_jobs(request)]

    assert names(filter='labels."run" = "a"', order_by="create_time desc") == ["job-2", "job-1", "job-0"]
    assert names(parent="projects/emulated/locations/us-east1") == ["job-4"]
    assert names(parent="projects/other/locations/-") == []
    batch.forget_calls()
    assert len(names(page_size=2)) == 5
    assert len(batch.calls("ListJobs")) == 3
    batch.set_quirks("us-east1 unreachable")
    [page] = client.list_jobs(parent="projects/emulated/locations/-").pages
    assert list(page.unreachable) == ["projects/emulated/locations/us-east1"]
    assert len(page.jobs) == 4
    with pytest.raises(exceptions.InvalidArgument, match="filter"):
        names(filter="status")


def _with_label(job: batch_v1.Job, key: str, value: str) -> None:
    job.labels = {key: value}


def _in_two_regions(job: batch_v1.Job) -> None:
    job.allocation_policy.location.allowed_locations = ["regions/us-central1", "zones/us-east1-b"]


def _with_disk(job: batch_v1.Job) -> None:
    policy = job.allocation_policy.instances[0].policy
    policy.machine_type, policy.boot_disk.type_ = "n4-standard-4", "pd-balanced"


def _too_large(job: batch_v1.Job) -> None:
    job.task_groups[0].task_spec.environment.variables = {"X": "x" * 1_000_001}


def _too_long(job: batch_v1.Job) -> None:
    job.task_groups[0].task_spec.max_run_duration = timedelta(days=15)


def _with_status(job: batch_v1.Job) -> None:
    job.status.state = JobStatus.State.RUNNING


def _with_two_groups(job: batch_v1.Job) -> None:
    job.task_groups = [job.task_groups[0], job.task_groups[0]]


def _with_many_retries(job: batch_v1.Job) -> None:
    job.task_groups[0].task_spec.max_retry_count = 11


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda job: _with_label(job, "Run", "a"), "Run=a"),
        (lambda job: _with_label(job, "goog-run", "a"), "reserved"),
        (lambda job: _with_label(job, "run", "A"), "run=A"),
        (_in_two_regions, "zones/us-east1-b are not in the job's region"),
        (_with_disk, "pd-balanced"),
        (_too_large, "1 MB"),
        (_too_long, "14 days"),
        (_with_status, "Job.status: output only"),
        (_with_two_groups, "one task group"),
        (_with_many_retries, "11"),
    ],
)
def test_what_batch_would_refuse_is_refused(
    batch: BatchEmulator, client: BatchServiceClient, change: Callable[[batch_v1.Job], None], words: str
) -> None:
    job = script("true")
    change(job)
    with pytest.raises(exceptions.InvalidArgument, match=words):
        create(client, job)
    assert batch.take_objections() == ([words] if "output only" in words else [])


def test_a_request_that_google_would_not_understand_is_remembered_whatever_its_client_makes_of_the_answer(
    batch: BatchEmulator, client: BatchServiceClient
) -> None:
    with contextlib.suppress(exceptions.InvalidArgument):
        client.cancel_job(name="jobs/one")
    assert batch.take_objections() == ["name: 'jobs/one' does not match ^projects/[^/]+/locations/[^/]+/jobs/[^/]+$"]
    assert batch.take_objections() == []


@pytest.mark.parametrize("job_id", ["Job", "1job", "job-", "job_1", "j" * 64, ""])
def test_wrong_ids_are_refused(client: BatchServiceClient, job_id: str) -> None:
    with pytest.raises(exceptions.InvalidArgument, match="job_id"):
        create(client, script("true"), job_id)


def test_an_unknown_region_is_refused(client: BatchServiceClient) -> None:
    with pytest.raises(exceptions.InvalidArgument, match="nowhere1"):
        create(client, script("true"), parent="projects/emulated/locations/nowhere1")
