"""What Batch's states and events mean. Their texts are those of Google's page on troubleshooting, and of real logs."""

from __future__ import annotations

import pytest

from marin_rules.clusters.gcp.shortages import advice_about
from marin_rules.clusters.gcp.states import (
    Ending,
    Event,
    element_state,
    ending_of,
    job_state,
    place_of,
    shortage_of,
    word_of,
)
from marin_rules.clusters.protocol import JobState

QUOTA = (
    "VM in Managed Instance Group meets error: Batch Error: code - CODE_GCE_QUOTA_EXCEEDED, description - error count"
    " is 4, latest message example: Instance 'a-0' creation failed: Quota 'N2_CPUS' exceeded.  Limit: 24.0 in region"
    " us-central1"
)
STOCK = "VM in Managed Instance Group meets error: Batch Error: code - CODE_GCE_ZONE_RESOURCE_POOL_EXHAUSTED"


@pytest.mark.parametrize(
    ("word", "code", "expected"),
    [
        ("QUEUED", None, JobState.WAITING),
        ("SCHEDULED", None, JobState.WAITING),
        ("RUNNING", None, JobState.RUNNING),
        ("RUNNING", 50001, JobState.RUNNING),
        ("SUCCEEDED", None, JobState.DONE),
        ("SUCCEEDED", 50001, JobState.DONE),
        ("FAILED", None, JobState.FAILED),
        ("FAILED", 1, JobState.FAILED),
        ("FAILED", 75, JobState.FAILED),
        ("FAILED", 50000, JobState.FAILED),
        ("FAILED", 50001, JobState.INTERRUPTED),
        ("FAILED", 50002, JobState.INTERRUPTED),
        ("FAILED", 50003, JobState.INTERRUPTED),
        ("FAILED", 50004, JobState.FAILED),
        ("FAILED", 50005, JobState.TIMED_OUT),
        ("FAILED", 50006, JobState.INTERRUPTED),
        ("DELETION_IN_PROGRESS", None, JobState.ENDING),
        ("CANCELLATION_IN_PROGRESS", None, JobState.ENDING),
        ("CANCELLED", 143, JobState.CANCELLED),
        ("SOMETHING_NEW", None, JobState.WAITING),
    ],
)
def test_the_state_of_a_job(word: str, code: int | None, expected: JobState) -> None:
    assert job_state(word, Ending(code)) is expected


@pytest.mark.parametrize(
    ("job", "task", "code", "expected"),
    [
        ("QUEUED", None, None, JobState.WAITING),
        ("RUNNING", None, None, JobState.WAITING),
        ("RUNNING", "PENDING", None, JobState.WAITING),
        ("RUNNING", "ASSIGNED", None, JobState.WAITING),
        ("RUNNING", "RUNNING", None, JobState.RUNNING),
        ("RUNNING", "SUCCEEDED", 0, JobState.DONE),
        ("RUNNING", "FAILED", 3, JobState.FAILED),
        ("RUNNING", "FAILED", 50001, JobState.INTERRUPTED),
        ("FAILED", "SUCCEEDED", 0, JobState.DONE),
        ("FAILED", "FAILED", 50005, JobState.TIMED_OUT),
        ("FAILED", "UNEXECUTED", None, JobState.INTERRUPTED),
        ("FAILED", None, None, JobState.INTERRUPTED),
        ("CANCELLATION_IN_PROGRESS", "RUNNING", None, JobState.ENDING),
        ("CANCELLATION_IN_PROGRESS", "SUCCEEDED", 0, JobState.DONE),
        ("CANCELLED", "FAILED", 143, JobState.CANCELLED),
        ("CANCELLED", "UNEXECUTED", None, JobState.CANCELLED),
        ("CANCELLED", "SUCCEEDED", 0, JobState.DONE),
        ("CANCELLED", None, None, JobState.CANCELLED),
    ],
)
def test_the_state_of_an_element(job: str, task: str | None, code: int | None, expected: JobState) -> None:
    assert element_state(job, task, Ending(code)) is expected


def test_of_several_endings_the_newest_by_its_time_is_the_one() -> None:
    first, second = Event(1.0, "preempted", 50001), Event(2.0, "done", 0)
    assert ending_of([second, Event(3.0, "no end"), first]).exit_code == 0
    assert ending_of([first, second]).exit_code == 0
    assert ending_of([Event(1.0, "running")]) == Ending(None)


@pytest.mark.parametrize(("code", "own"), [(None, None), (0, 0), (75, 75), (50001, None), (50000, None)])
def test_batchs_own_codes_are_none_of_the_program(code: int | None, own: int | None) -> None:
    assert Ending(code).own_code == own


@pytest.mark.parametrize(
    ("state", "code", "word"),
    [
        ("FAILED", 50001, "PREEMPTED (50001)"),
        ("FAILED", 50005, "OUT_OF_TIME (50005)"),
        ("FAILED", 50000, "FAILED (50000)"),
        ("FAILED", 3, "FAILED"),
        ("FAILED", None, "FAILED"),
        ("SUCCEEDED", 50001, "SUCCEEDED"),
        ("CANCELLED", 143, "CANCELLED"),
    ],
)
def test_people_are_told_why_batch_ended_a_task(state: str, code: int | None, word: str) -> None:
    assert word_of(state, Ending(code)) == word


def test_the_machine_is_that_of_the_newest_event_that_names_one() -> None:
    text = "Task state is updated from {} to {} on zones/us-central1-{}/instances/{}"
    events = [
        Event(3.0, text.format("PENDING", "RUNNING", "b", "22")),
        Event(1.0, text.format("RUNNING", "FAILED", "a", "11") + " due to Spot Preemption with exit code 50001."),
        Event(4.0, "Task state is updated from RUNNING to PENDING."),
    ]
    assert place_of(events) == "us-central1-b/22"
    assert place_of([]) == ""


def test_why_a_job_waits_is_what_its_newest_event_says() -> None:
    assert shortage_of([Event(2.0, STOCK), Event(1.0, QUOTA)]) == "CODE_GCE_ZONE_RESOURCE_POOL_EXHAUSTED"
    assert shortage_of([Event(1.0, QUOTA)]).startswith("CODE_GCE_QUOTA_EXCEEDED: error count is 4")
    assert shortage_of([Event(1.0, "Job state is set from QUEUED to SCHEDULED for job x.")]) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (QUOTA, ["the quota N2_CPUS of the project, 24 in us-central1,", "iam-admin/quotas"]),
        ("code - CODE_GCE_QUOTA_EXCEEDED", ["a quota of the project is used up"]),
        (STOCK, ["no such machines there now", "more zones"]),
        ("code - CODE_GCE_PERMISSION_DENIED, description - no", ["gcloud batch jobs describe"]),
    ],
)
def test_there_is_advice_about_a_job_that_gets_no_machines(text: str, words: list[str]) -> None:
    advice = advice_about(shortage_of([Event(1.0, text)]))
    assert advice is not None
    assert all(word in advice for word in words)


def test_there_is_none_about_a_job_that_is_as_it_should_be() -> None:
    assert advice_about("") is None
