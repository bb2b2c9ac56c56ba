"""Faults of calls over gRPC: what each kind does to the service and to Google's client."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.cloud import batch_v1
from google.cloud.batch_v1 import BatchServiceClient

from support.emulators.batch.clients import batch_client
from support.emulators.batch.emulator import BatchEmulator

TESTS = Path(__file__).resolve().parents[1]
PARENT = "projects/emulated/locations/us-central1"


@pytest.fixture
def client(batch: BatchEmulator) -> BatchServiceClient:
    return batch_client(batch)


def create(client: BatchServiceClient, job_id: str = "job", timeout: float = 10) -> batch_v1.Job:
    runnable = batch_v1.Runnable(script=batch_v1.Runnable.Script(text="true"))
    job = batch_v1.Job(task_groups=[batch_v1.TaskGroup(task_spec=batch_v1.TaskSpec(runnables=[runnable]))])
    return client.create_job(parent=PARENT, job=job, job_id=job_id, timeout=timeout, retry=None)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("PERMISSION_DENIED", exceptions.PermissionDenied),
        ("UNAUTHENTICATED", exceptions.Unauthenticated),
        ("RESOURCE_EXHAUSTED", exceptions.ResourceExhausted),
        ("UNAVAILABLE", exceptions.ServiceUnavailable),
        ("INTERNAL", exceptions.InternalServerError),
    ],
)
def test_a_code_is_answered_instead_of_acting(
    batch: BatchEmulator, client: BatchServiceClient, code: str, error: type[Exception]
) -> None:
    batch.inject(code, methods=["CreateJob"], times=1)
    with pytest.raises(error):
        create(client)
    assert [(call.method, call.path, call.fault, call.code) for call in batch.calls()] == [
        ("CreateJob", PARENT, code, code)
    ]
    assert list(client.list_jobs(parent=PARENT)) == []
    create(client)


def test_a_cut_request_was_not_applied_and_a_lost_answer_was(batch: BatchEmulator, client: BatchServiceClient) -> None:
    for kind, found in (("cut", []), ("lost", ["lost"])):
        batch.inject(kind, methods=["CreateJob"], times=1)
        with pytest.raises(exceptions.ServiceUnavailable):
            create(client, kind)
        assert [job.name.rpartition("/")[2] for job in client.list_jobs(parent=PARENT)] == found
    assert [call.code for call in batch.calls("CreateJob")] == [None, "OK"]


def test_a_call_that_hangs_is_over_at_its_deadline(batch: BatchEmulator, client: BatchServiceClient) -> None:
    batch.inject("hang", methods=["CreateJob"], times=1)
    with pytest.raises(exceptions.DeadlineExceeded):
        create(client, timeout=0.2)
    batch.clear_faults()
    assert list(client.list_jobs(parent=PARENT)) == []


def test_a_slow_answer_may_come_after_its_deadline(batch: BatchEmulator, client: BatchServiceClient) -> None:
    batch.inject("lost", methods=["CreateJob"], times=1, seconds=60)
    with pytest.raises(exceptions.DeadlineExceeded):
        create(client, timeout=0.2)
    assert len(list(client.list_jobs(parent=PARENT))) == 1


def test_the_client_itself_tries_a_list_again(batch: BatchEmulator, client: BatchServiceClient) -> None:
    batch.inject("UNAVAILABLE", methods=["ListJobs"], times=1)
    assert list(client.list_jobs(parent=PARENT)) == []
    assert [call.code for call in batch.calls("ListJobs")] == ["UNAVAILABLE", "OK"]


def test_the_log_of_calls_has_whole_requests(batch: BatchEmulator, client: BatchServiceClient) -> None:
    create(client)
    [call] = batch.calls("CreateJob")
    assert call.request["jobId"] == "job"
    assert call.request["job"]["taskGroups"][0]["taskSpec"]["runnables"] == [{"script": {"text": "true"}}]


def test_a_log_of_calls_may_be_large(batch: BatchEmulator, client: BatchServiceClient) -> None:
    large = batch_v1.Runnable(script=batch_v1.Runnable.Script(text="#" * 900_000))
    job = batch_v1.Job(task_groups=[batch_v1.TaskGroup(task_spec=batch_v1.TaskSpec(runnables=[large]))])
    batch.hold("QUEUED")
    for number in range(6):
        client.create_job(parent=PARENT, job=job, job_id=f"job-{number}", timeout=10)
    assert len(batch.calls("CreateJob")) == len(list(client.list_jobs(parent=PARENT))) == 6


def test_an_answer_has_the_fields_that_were_asked_for(batch: BatchEmulator, client: BatchServiceClient) -> None:
    created = create(client)
    mask = "jobs.name,jobs.task_groups.task_count,next_page_token"
    [job] = client.list_jobs(parent=PARENT, metadata=[("x-goog-fieldmask", mask)])
    assert (job.name, job.uid, job.task_groups[0].task_count) == (created.name, "", 1)
    assert not job.task_groups[0].task_spec.runnables
    assert batch.calls("ListJobs")[0].mask == mask


def test_a_mistake_of_a_test_reaches_that_test(batch: BatchEmulator) -> None:
    with pytest.raises(ValueError, match="no job missing"):
        batch.preempt("missing")
    with pytest.raises(ValueError, match="no such quirks: odd"):
        batch.set_quirks("odd")


@pytest.mark.processes
def test_the_emulator_ends_with_whoever_started_it_and_leaves_no_task_running(tmp_path: Path) -> None:
    code = """
    import sys, time
    from pathlib import Path
    from emulators.test_batch_jobs import create, running, script
    from support.emulators.batch.clients import batch_client
    from support.emulators.batch.emulator import BatchEmulator
    batch = BatchEmulator(Path(sys.argv[1]))
    client = batch_client(batch)
    create(client, script("setsid sleep 60 & sleep 60"))
    running(client, batch, 3)
    print(batch.pid, *batch.processes(), flush=True)
    time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=TESTS, text=True) as parent:
        assert parent.stdout is not None
        pids = parent.stdout.readline().split()
        assert len(pids) >= 4
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
        deadline = time.monotonic() + 20
        while any(Path("/proc", pid).exists() for pid in pids):
            assert time.monotonic() < deadline, "something was left running"
            time.sleep(0.05)
