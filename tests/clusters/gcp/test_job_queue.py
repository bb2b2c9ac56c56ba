"""The queue of Google Batch behind the protocol of all clusters, on the emulator."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marin_rules.clusters.allocation import EndCause
from marin_rules.clusters.gcp.calls import Calls, NotFoundError, open_batch_client
from marin_rules.clusters.gcp.job_end import why_told_to_end
from marin_rules.clusters.gcp.job_queue import BatchQueue
from marin_rules.clusters.gcp.job_variables import ELEMENT_VARIABLE
from marin_rules.clusters.gcp.logs import open_logging_client
from marin_rules.clusters.gcp.site import GcpSite
from marin_rules.clusters.protocol import (
    ArrayTasks,
    BusyError,
    ClusterError,
    ClusterJob,
    JobQueue,
    JobRequest,
    JobState,
    JobTag,
    RefusedError,
)
from support.emulators.batch.clients import batch_client, logging_client
from support.emulators.batch.emulator import QUOTA_SHORTAGE, BatchEmulator
from support.emulators.waiting import wait

SITE = GcpSite("lab", "emulated", ("us-central1", "us-east1"))
TAG = JobTag.of("run-1", "train-0123ab", "gs://bucket/train-0123ab")
ARRAY = replace(TAG, tasks=ArrayTasks(1, 100))
RESOURCES = {"gcp_region": "us-central1", "gcp_machine_type": "e2-standard-4", "gcp_provisioning": "SPOT"}


@pytest.fixture
def open_queue(batch: BatchEmulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., BatchQueue]]:
    """`open_queue(owner=...)` is the queue as a driver of its own finds it."""
    for service in ("BATCH", "LOGGING"):
        monkeypatch.setenv(f"{service}_EMULATOR_HOST", batch.address)
    opened: list[BatchQueue] = []

    def open_one(owner: str | None = "ann", retry_seconds: float = 5.0, call_seconds: float = 10.0) -> BatchQueue:
        opened.append(BatchQueue(SITE, owner=owner, calls=Calls(retry_seconds, call_seconds)))
        return opened[-1]

    yield open_one
    for queue in opened:
        queue.close()


@pytest.fixture
def queue(open_queue: Callable[..., BatchQueue]) -> BatchQueue:
    return open_queue()


def request(script: str, folder: Path = Path("/tmp"), **fields: Any) -> JobRequest:
    defaults = {"name": "train", "variables": {"GREETING": "hello"}, "log": "", "resources": RESOURCES, "tag": TAG}
    return JobRequest(script=script, folder=str(folder), **{**defaults, **fields})


def ended(queue: JobQueue, *ids: str) -> dict[str, ClusterJob]:
    """These jobs, once all of them have ended."""
    found = wait(
        lambda: queue.look(ids), lambda jobs: all(number in jobs and not jobs[number].is_live for number in ids)
    )
    return {number: found[number] for number in ids}


def running(batch: BatchEmulator, processes: int = 1) -> None:
    wait(batch.processes, lambda pids: len(pids) >= processes)


def test_it_fulfils_the_protocol(queue: BatchQueue) -> None:
    checked: JobQueue = queue
    assert (checked.cluster, checked.title) == ("gcp", "Google Batch")


def test_a_job_runs_in_its_folder_with_its_variables_and_ends_well(
    queue: BatchQueue, batch: BatchEmulator, tmp_path: Path
) -> None:
    script = 'echo "$GREETING from $PWD"; test -n "$MARIN_RULES_JOB_NODE"'
    number = queue.submit(request(script, tmp_path, resources={**RESOURCES, "runtime": 60, "cpus_per_task": 4}))
    job = ended(queue, number)[number]
    assert (job.cluster, job.id, job.state, job.word, job.tag) == ("gcp", number, JobState.DONE, "SUCCEEDED", TAG)
    assert job.seconds is not None
    entries = logging_client(batch).list_log_entries(
        resource_names=["projects/emulated"], filter=f'labels."marin-job"="{number}"'
    )
    assert [entry.text_payload for entry in entries] == [f"hello from {tmp_path}"]


def test_a_job_knows_itself_as_the_queue_knows_it(queue: BatchQueue, tmp_path: Path) -> None:
    code = (
        "from marin_rules.clusters.gcp.allocation import allocation_from; import os, pathlib;"
        "found = allocation_from(os.environ);"
        "pathlib.Path('found').write_text(f'{found.job_id} {found.cpus} {found.deadline is not None}')"
    )
    words = {"runtime": 60, "cpus_per_task": 4}
    number = queue.submit(request(f'exec {sys.executable} -c "{code}"', tmp_path, resources={**RESOURCES, **words}))
    assert ended(queue, number)[number].state is JobState.DONE
    assert (tmp_path / "found").read_text() == f"{number} 4 True"


@pytest.mark.parametrize(
    ("script", "state", "exit_code"),
    [("exit 3", JobState.FAILED, 3), ("exit 75", JobState.FAILED, 75), ("kill -9 $$", JobState.FAILED, 137)],
)
def test_a_failed_job_has_the_exit_code_of_its_program(
    queue: BatchQueue, script: str, state: JobState, exit_code: int
) -> None:
    number = queue.submit(request(script))
    job = ended(queue, number)[number]
    assert (job.state, job.exit_code) == (state, exit_code)
    assert job.nodes.startswith("us-central1-a/")


@pytest.mark.parametrize(
    ("code", "state", "word"),
    [
        (50001, JobState.INTERRUPTED, "PREEMPTED (50001)"),
        (50002, JobState.INTERRUPTED, "SILENT (50002)"),
        (50003, JobState.INTERRUPTED, "REBOOTED (50003)"),
        (50004, JobState.FAILED, "UNRESPONSIVE (50004)"),
        (50006, JobState.INTERRUPTED, "RECREATED (50006)"),
    ],
)
def test_a_lost_machine_is_an_interruption(
    queue: BatchQueue, batch: BatchEmulator, code: int, state: JobState, word: str
) -> None:
    batch.set_quirks("unordered events")
    number = queue.submit(request("sleep 60"))
    running(batch)
    batch.lose_machine(number, code=code)
    job = ended(queue, number)[number]
    assert (job.state, job.exit_code, job.word) == (state, None, word)


def test_a_job_without_machines_waits_and_there_is_advice(queue: BatchQueue, batch: BatchEmulator) -> None:
    batch.set_shortage(QUOTA_SHORTAGE)
    number = queue.submit(request("true"))
    job = wait(lambda: queue.look([number])[number], lambda job: bool(job.reason))
    assert job.state is JobState.WAITING
    advice = queue.advice(job)
    assert advice is not None
    assert "the quota CPUS of the project, 24 in us-central1," in advice
    batch.set_shortage(None)
    assert queue.advice(ended(queue, number)[number]) is None


def test_the_next_job_of_the_same_step_has_the_next_number(queue: BatchQueue) -> None:
    first = queue.submit(request("exit 1"))
    ended(queue, first)
    second = queue.submit(request("true"))
    assert (first[:-1], first[-1], second[-1]) == (second[:-1], "1", "2")
    assert {job.state for job in ended(queue, first, second).values()} == {JobState.FAILED, JobState.DONE}


def test_jobs_of_other_steps_runs_and_prefixes_have_other_ids(queue: BatchQueue) -> None:
    tags = [
        TAG,
        replace(TAG, step="train-0123ac"),
        replace(TAG, run="run-2"),
        replace(TAG, place="elsewhere"),
        replace(TAG, tasks=ArrayTasks(1, 0)),
        None,
        None,
    ]
    assert len({queue.submit(request("true", tag=tag)) for tag in tags}) == 7


@pytest.mark.parametrize("script", ["sleep 60", "true"])
def test_a_lost_answer_makes_no_second_job(queue: BatchQueue, batch: BatchEmulator, script: str) -> None:
    batch.inject("lost", methods=["CreateJob"], times=1)
    number = queue.submit(request(script))
    calls = batch.calls("CreateJob")
    assert [(call.fault, call.code) for call in calls] == [("lost", "OK"), (None, "OK")]
    assert {(call.request["jobId"], call.request["requestId"]) for call in calls} == {
        (number, calls[0].request["requestId"])
    }
    assert list(queue.look([number])) == [number]


def test_the_job_of_an_answer_that_never_came_is_found_by_the_next_try(
    open_queue: Callable[..., BatchQueue], batch: BatchEmulator
) -> None:
    queue = open_queue(retry_seconds=0.1)
    batch.inject("lost", methods=["CreateJob"])
    with pytest.raises(BusyError, match="create job train-"):
        queue.submit(request("true"))
    batch.clear_faults()
    [number] = {call.request["jobId"] for call in batch.calls("CreateJob")}
    wait(lambda: open_queue().look([number]), lambda jobs: number in jobs and not jobs[number].is_live)
    # It has even ended by now.
    assert queue.submit(request("true")) == number


def test_another_driver_of_the_same_run_adopts_what_lives_and_makes_anew_what_has_ended(
    open_queue: Callable[..., BatchQueue], batch: BatchEmulator
) -> None:
    number = open_queue().submit(request("sleep 60"))
    assert open_queue().submit(request("sleep 60")) == number
    running(batch)
    batch.preempt(number)
    ended(open_queue(), number)
    assert open_queue().submit(request("true")) == f"{number[:-1]}2"


def test_a_job_of_somebody_else_under_the_same_id_is_not_taken_for_ours(
    open_queue: Callable[..., BatchQueue], batch: BatchEmulator
) -> None:
    from google.cloud import batch_v1

    batch.hold("QUEUED")
    number = open_queue().submit(request("true"))
    definition = batch_client(batch).get_job(name=f"projects/emulated/locations/us-central1/jobs/{number}")
    batch.reset()
    batch.hold("QUEUED")
    foreign = batch_v1.Job(task_groups=[batch_v1.TaskGroup(task_spec=definition.task_groups[0].task_spec)])
    batch_client(batch).create_job(
        parent="projects/emulated/locations/us-central1", job=foreign, job_id=number, timeout=10
    )
    queue = open_queue()
    mine = queue.submit(request("true"))
    assert mine == f"{number[:-1]}2"
    assert queue.look([mine])[mine].tag == TAG


def test_jobs_that_live_are_found_by_another_driver_with_their_tags(
    open_queue: Callable[..., BatchQueue], batch: BatchEmulator
) -> None:
    queue = open_queue()
    done = queue.submit(request("true"))
    ended(queue, done)
    batch.hold("QUEUED")
    here = queue.submit(request("true", tag=replace(TAG, run="run-2")))
    there = queue.submit(request("true", tag=replace(TAG, run="run-3"), resources={"gcp_region": "us-east1"}))
    open_queue(owner="bob").submit(request("true", tag=replace(TAG, run="run-4")))
    found = open_queue().jobs()
    assert {number: job.tag.run for number, job in found.items() if job.tag} == {here: "run-2", there: "run-3"}
    assert {job.state for job in found.values()} == {JobState.WAITING}


def test_what_nothing_knows_of_is_left_out(queue: BatchQueue) -> None:
    assert queue.look([]) == {}
    assert queue.look(["never-1", "never-1_3"]) == {}


def test_a_region_that_does_not_answer_is_no_news(queue: BatchQueue, batch: BatchEmulator) -> None:
    number = queue.submit(request("true"))
    batch.set_quirks("us-east1 unreachable")
    with pytest.raises(BusyError, match="us-east1"):
        queue.jobs()
    with pytest.raises(BusyError, match="us-east1"):
        queue.look([number])


def test_a_look_at_many_jobs_is_one_list_without_scripts(queue: BatchQueue, batch: BatchEmulator) -> None:
    batch.hold("QUEUED")
    numbers = submit_steps(queue, 20)
    batch.forget_calls()
    assert set(queue.look(numbers)) == set(numbers)
    [call] = batch.calls()
    assert call.method == "ListJobs"
    assert "jobs.status" in call.mask.split(",")
    assert "task_spec" not in call.mask
    batch.hold()
    ended(queue, *numbers)
    batch.forget_calls()
    assert set(queue.look(numbers)) == set(numbers)
    assert batch.calls() == []  # What has ended does not change.


def submit_steps(queue: BatchQueue, count: int) -> list[str]:
    """Jobs of so many steps, oldest first."""
    return [queue.submit(request("true", tag=replace(TAG, step=f"step{number}-0123ab"))) for number in range(count)]


def test_lists_are_read_page_by_page_until_all_that_is_wanted_is_there(queue: BatchQueue, batch: BatchEmulator) -> None:
    batch.hold("QUEUED")
    numbers = submit_steps(queue, 5)
    batch.set_largest_page(2)
    for wanted, pages in ((numbers, 3), (numbers[-2:], 1), (numbers[:1], 3)):
        batch.forget_calls()
        assert set(queue.look(wanted)) == set(wanted)
        assert [call.method for call in batch.calls()] == ["ListJobs"] * pages
    assert set(queue.jobs()) == set(numbers)


def test_lists_end_where_no_job_can_be_alive_any_more(queue: BatchQueue, batch: BatchEmulator) -> None:
    batch.hold("QUEUED")
    numbers = submit_steps(queue, 6)
    for number in numbers[:4]:
        batch.age(number, 18)
    batch.set_largest_page(2)
    batch.forget_calls()
    # The page of those that are too old ends it; the one after that is not asked for.
    assert set(queue.jobs()) == {*numbers[4:], *numbers[2:4]}
    assert len(batch.calls("ListJobs")) == 2


def test_a_job_that_lists_do_not_show_is_looked_at_by_its_name(queue: BatchQueue, batch: BatchEmulator) -> None:
    batch.hold("QUEUED")
    old, *_ = submit_steps(queue, 4)
    batch.age(old, 40)
    batch.set_largest_page(1)
    for number in submit_steps(queue, 4)[1:]:
        batch.age(number, 30)
    batch.forget_calls()
    assert queue.look([old])[old].state is JobState.WAITING
    assert "GetJob" in [call.method for call in batch.calls()]


def test_tasks_are_read_page_by_page(queue: BatchQueue, batch: BatchEmulator) -> None:
    batch.set_largest_page(2)
    number = queue.submit(request("test $BATCH_TASK_INDEX != 4", tag=ARRAY, elements=range(5)))
    jobs = ended(queue, *(f"{number}_{element}" for element in range(5)))
    assert [job.state for job in jobs.values()] == [*[JobState.DONE] * 4, JobState.FAILED]


def test_cancelling_ends_a_job_and_is_no_error_for_one_that_has_ended(queue: BatchQueue, batch: BatchEmulator) -> None:
    number = queue.submit(request("sleep 60"))
    running(batch)
    queue.cancel([number])
    assert ended(queue, number)[number].state is JobState.CANCELLED
    assert batch.processes() == []
    queue.cancel([number, "never-1"])


def test_a_job_that_ends_in_the_moment_of_its_cancellation_is_no_error(queue: BatchQueue, batch: BatchEmulator) -> None:
    number = queue.submit(request("sleep 60"))
    running(batch)
    batch.inject("lost", methods=["CancelJob"], times=1)
    batch.inject("latency", methods=["CancelJob"], seconds=0.2)
    batch.set_grace(0)
    queue.cancel([number])
    assert ended(queue, number)[number].state is JobState.CANCELLED


def test_a_job_that_cannot_be_cancelled_does_not_keep_the_others_running(
    queue: BatchQueue, batch: BatchEmulator
) -> None:
    numbers = [queue.submit(request("sleep 60", tag=replace(TAG, step=f"train-{step}"))) for step in range(2)]
    running(batch, 2)
    batch.inject("PERMISSION_DENIED", methods=["CancelJob"], times=1)
    with pytest.raises(RefusedError, match=f"could not cancel job {numbers[0]}: "):
        queue.cancel(numbers)
    assert ended(queue, numbers[1])[numbers[1]].state is JobState.CANCELLED
    assert queue.look(numbers)[numbers[0]].state is JobState.RUNNING


def test_another_process_can_cancel(open_queue: Callable[..., BatchQueue], batch: BatchEmulator) -> None:
    number = open_queue().submit(request("sleep 60", resources={"gcp_region": "us-east1"}))
    running(batch)
    queue = open_queue()
    queue.cancel([number])
    assert ended(queue, number)[number].state is JobState.CANCELLED
    assert queue.cancel_command([number]) == f"gcloud batch jobs cancel {number} --location=us-east1 --project=emulated"


def test_the_elements_of_an_array_are_jobs_of_their_own(queue: BatchQueue, batch: BatchEmulator) -> None:
    script = "case $BATCH_TASK_INDEX in 0) exit 0;; 1) exit 3;; *) exec sleep 60;; esac"
    number = queue.submit(request(script, tag=ARRAY, elements=[0, 1, 2, 3], at_once=3))
    elements = [f"{number}_{index}" for index in range(4)]
    jobs = wait(
        lambda: queue.look(elements),
        lambda jobs: [jobs[one].state for one in elements if one in jobs].count(JobState.RUNNING) == 2,
    )
    assert [(jobs[one].state, jobs[one].exit_code, jobs[one].task) for one in elements] == [
        (JobState.DONE, 0, 100),
        (JobState.FAILED, 3, 101),
        (JobState.RUNNING, None, 102),
        (JobState.RUNNING, None, 103),
    ]
    assert {job.array for job in jobs.values()} == {number}
    assert set(queue.jobs()) == set(elements)
    batch.preempt(number, 2)
    jobs = wait(lambda: queue.look(elements), lambda jobs: not jobs[elements[2]].is_live)
    assert jobs[elements[2]].state is JobState.INTERRUPTED
    assert jobs[elements[3]].state is JobState.RUNNING


def test_elements_with_gaps_keep_their_numbers(queue: BatchQueue, tmp_path: Path) -> None:
    script = "touch $MARIN_RULES_JOB_ELEMENT; test $MARIN_RULES_JOB_ELEMENT != 7"
    number = queue.submit(request(script, tmp_path, tag=ARRAY, elements=[0, 7, 9]))
    jobs = ended(queue, *(f"{number}_{element}" for element in (0, 7, 9)))
    assert [(job.element, job.task, job.state) for job in jobs.values()] == [
        (0, 100, JobState.DONE),
        (7, 107, JobState.FAILED),
        (9, 109, JobState.DONE),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "7", "9"]


def test_elements_that_wait_are_listed_too(queue: BatchQueue, batch: BatchEmulator) -> None:
    batch.hold("QUEUED")
    number = queue.submit(request("true", tag=ARRAY, elements=range(3)))
    assert {number: job.state for number, job in queue.jobs().items()} == {
        f"{number}_{element}": JobState.WAITING for element in range(3)
    }


def test_an_array_is_cancelled_as_a_whole_or_not_at_all(queue: BatchQueue, batch: BatchEmulator) -> None:
    number = queue.submit(request("exec sleep 60", tag=ARRAY, elements=range(3)))
    elements = [f"{number}_{element}" for element in range(3)]
    running(batch, 3)
    with pytest.raises(RefusedError, match=f"cannot end single tasks of a job: {elements[2]} would end too"):
        queue.cancel(elements[:2])
    assert batch.calls("CancelJob") == []
    assert {job.state for job in queue.look(elements).values()} == {JobState.RUNNING}
    queue.cancel(elements)
    assert {job.state for job in ended(queue, *elements).values()} == {JobState.CANCELLED}
    assert batch.processes() == []


def test_tasks_are_dealt_out_to_arrays_that_batch_takes(queue: BatchQueue) -> None:
    assert queue.deal([]) == []
    assert queue.deal([3, 5, 8]) == [[3, 5, 8]]
    assert [len(array) for array in queue.deal(range(25_000))] == [10_000, 10_000, 5_000]
    assert queue.deal([0, 99_999, 100_000]) == [[0, 99_999], [100_000]]


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("PERMISSION_DENIED", RefusedError, "batch.jobsEditor"),
        ("UNAUTHENTICATED", RefusedError, "gcloud auth application-default login"),
        ("INVALID_ARGUMENT", RefusedError, "create job train-"),
        ("NOT_FOUND", NotFoundError, "create job train-"),
        ("RESOURCE_EXHAUSTED", BusyError, "Quota exceeded"),
        ("UNAVAILABLE", BusyError, "currently unavailable"),
        ("DEADLINE_EXCEEDED", BusyError, "create job train-"),
        ("INTERNAL", BusyError, "create job train-"),
        ("UNKNOWN", BusyError, "create job train-"),
        ("CANCELLED", BusyError, "create job train-"),
        ("DATA_LOSS", ClusterError, "create job train-"),
    ],
)
def test_what_goes_wrong_is_said_with_what_to_do(
    open_queue: Callable[..., BatchQueue], batch: BatchEmulator, code: str, kind: type[ClusterError], words: str
) -> None:
    batch.inject(code, methods=["CreateJob"])
    with pytest.raises(kind, match=words) as raised:
        open_queue(retry_seconds=0.1).submit(request("true"))
    assert type(raised.value) is kind


@pytest.mark.parametrize("code", ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "UNKNOWN", "CANCELLED"])
def test_what_passes_is_tried_again(queue: BatchQueue, batch: BatchEmulator, code: str) -> None:
    batch.inject(code, times=2)
    number = queue.submit(request("true"))
    batch.inject(code, times=2)
    assert list(queue.look([number])) == [number]
    assert len(batch.calls("CreateJob")) == 3


@pytest.mark.parametrize("method", ["CreateJob", "GetJob", "ListJobs", "ListTasks", "CancelJob"])
def test_a_call_that_hangs_is_given_up(
    open_queue: Callable[..., BatchQueue], batch: BatchEmulator, method: str
) -> None:
    queue = open_queue(retry_seconds=2.0, call_seconds=0.5)
    number = queue.submit(request("exec sleep 60", tag=ARRAY, elements=range(2)))
    running(batch, 2)
    batch.inject("hang", methods=[method])
    ask: dict[str, Callable[[], object]] = {
        "CreateJob": lambda: queue.submit(request("true")),
        "GetJob": lambda: queue.cancel([number]),
        "ListJobs": queue.jobs,
        "ListTasks": lambda: queue.look([f"{number}_0"]),
        "CancelJob": lambda: queue.cancel([number]),
    }
    with pytest.raises(BusyError):
        ask[method]()


def test_logs_are_where_people_find_them(queue: BatchQueue) -> None:
    number = queue.submit(request("true", resources={"gcp_region": "us-east1"}))
    assert queue.log_of("/any/{job}.log", number) == (
        f"https://console.cloud.google.com/batch/jobsDetail/regions/us-east1/jobs/{number}/logs?project=emulated"
    )


def test_the_last_lines_of_a_job_are_read_also_by_a_driver_that_did_not_submit_it(
    open_queue: Callable[..., BatchQueue],
) -> None:
    queue = open_queue()
    number = queue.submit(request("echo one; echo; echo two; echo three >&2; exit 3"))
    ended(queue, number)
    for asked in (queue, open_queue()):
        assert asked.last_lines(number, 3) == ["", "two", "three"]
        assert asked.last_lines(number, 99) == ["one", "", "two", "three"]
    assert queue.last_lines("train-0123456789-1", 3) == [], "no such job"


def test_the_last_lines_of_one_element_are_its_own(queue: BatchQueue) -> None:
    elements = [1, 10, 11]
    number = queue.submit(request(f"echo ${ELEMENT_VARIABLE}", tag=ARRAY, elements=elements))
    ids = [f"{number}_{element}" for element in elements]
    ended(queue, *ids)
    assert [queue.last_lines(id, 5) for id in ids] == [["1"], ["10"], ["11"]]
    assert sorted(queue.last_lines(number, 5)) == ["1", "10", "11"]


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("UNAVAILABLE", BusyError, "could not read the log of job train-"),
        ("PERMISSION_DENIED", RefusedError, "needs the roles logging.viewer"),
    ],
)
def test_a_log_that_does_not_come_is_a_matter_of_its_own(
    open_queue: Callable[..., BatchQueue], batch: BatchEmulator, fault: str, error: type[ClusterError], words: str
) -> None:
    queue = open_queue(retry_seconds=0.1)
    number = queue.submit(request("true"))
    batch.inject(fault, methods=["ListLogEntries"])
    with pytest.raises(error, match=words):
        queue.last_lines(number, 5)
    assert queue.look([number])


def test_without_credentials_it_is_said_how_to_get_some(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BATCH_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(RefusedError, match="gcloud auth application-default login"):
        open_batch_client()
    monkeypatch.delenv("LOGGING_EMULATOR_HOST", raising=False)
    with pytest.raises(RefusedError, match="gcloud auth application-default login"):
        open_logging_client()


def test_a_job_that_a_person_cancels_can_find_out(
    queue: BatchQueue, batch: BatchEmulator, site: Callable[[str], GcpSite], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = queue.submit(request("exec sleep 60"))
    running(batch)
    monkeypatch.delenv("MARIN_CLUSTER", raising=False)
    assert why_told_to_end(job) is EndCause.UNKNOWN, "nobody can be asked"
    site("gcp: {project: emulated, regions: [us-central1]}")
    monkeypatch.setenv("MARIN_CLUSTER", "lab")
    assert why_told_to_end(job) is EndCause.UNKNOWN, "nobody has cancelled it"
    queue.cancel([job])
    assert why_told_to_end(job) is EndCause.CANCELLED


def test_a_driver_under_another_name_submits_jobs_of_its_person(
    open_queue: Callable[..., BatchQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On its machine it is some user of the image; that person must find the jobs, and the next driver, too."""
    monkeypatch.setenv("MARIN_RULES_OWNER", "ann")
    job = open_queue(owner=None).submit(request("exec sleep 60"))
    assert job in open_queue(owner="ann").jobs()
