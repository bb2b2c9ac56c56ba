"""A job that runs may still wait for its TPU slice: what its worker says of that, and what the queue makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from marin_rules.clusters.gcp.calls import Calls
from marin_rules.clusters.gcp.job_queue import BatchQueue
from marin_rules.clusters.gcp.names import digest
from marin_rules.clusters.gcp.shortages import advice_about, no_slice
from marin_rules.clusters.gcp.site import GcpSite
from marin_rules.clusters.gcp.slice_notice import SliceNotice
from marin_rules.clusters.gcp.tpu_supply import TpuSupply
from marin_rules.clusters.protocol import JobRequest, JobState, JobTag
from support.emulators.batch.clients import batch_client
from support.emulators.batch.emulator import BatchEmulator
from support.emulators.gcs.emulator import GcsEmulator
from support.emulators.waiting import wait

TAG = JobTag.of("run-1", "train-0123ab", "gs://bucket/train-0123ab")
SITE = GcpSite("lab", "emulated", ("us-central1",), tpus={"v4": TpuSupply(("us-central1-a",), "base")})
REQUEST = JobRequest(
    name="train",
    script="exec sleep 60",
    variables={},
    folder="/tmp",
    log="",
    resources={"gcp_region": "us-central1", "gcp_tpu": "v4-8", "gcp_tpu_provisioning": "SPOT"},
    tag=TAG,
    meeting_place="gs://bucket/meetings",
)
QUEUED = no_slice("v4-8, Spot, in us-central1-a: WAITING_FOR_RESOURCES")


@pytest.fixture
def open_queue(batch: BatchEmulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], BatchQueue]]:
    monkeypatch.setenv("BATCH_EMULATOR_HOST", batch.address)
    opened: list[BatchQueue] = []

    def open_one() -> BatchQueue:
        opened.append(BatchQueue(SITE, owner="ann", calls=Calls(5.0, 5.0)))
        return opened[-1]

    yield open_one
    for queue in opened:
        queue.close()


def notice_of(job: str) -> SliceNotice:
    return SliceNotice(f"gs://bucket/meetings/{digest(f'{TAG.step} {TAG.place}')}", job)


@pytest.mark.usefixtures("gcs_here")
def test_a_job_whose_worker_waits_for_a_slice_is_not_running(
    open_queue: Callable[[], BatchQueue], batch: BatchEmulator
) -> None:
    queue = open_queue()
    number = queue.submit(REQUEST)
    wait(lambda: queue.look([number])[number].state, lambda state: state is JobState.RUNNING)
    notice_of(number).say(QUEUED)
    for asked in (queue, open_queue()):  # Also one that did not submit it.
        job = asked.look([number])[number]
        assert (job.state, job.word, job.reason) == (JobState.WAITING, "WAITING", QUEUED)
        assert "name more zones" in str(asked.advice(job))
    batch.forget_calls()
    queue.look([number])
    assert [call.method for call in batch.calls()] == ["ListJobs"], "where to look is asked once"
    notice_of(number).say("")
    job = queue.jobs()[number]
    assert (job.state, job.word, job.reason) == (JobState.RUNNING, "RUNNING", "")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"no json", b'{"job": "other", "reason": "x"}', b'{"reason": "x"}', b"[" * 10_000]
)
def test_a_word_that_is_none_of_this_job_is_none(gcs_here: GcsEmulator, content: bytes) -> None:
    gcs_here.put("bucket", "meetings/waits.json", content)
    assert SliceNotice("gs://bucket/meetings", "train-1").read() == ""


def test_a_word_that_somebody_else_left_changes_no_terminal_and_fills_no_memory(gcs_here: GcsEmulator) -> None:
    notice = SliceNotice("gs://bucket/meetings", "train-1")
    gcs_here.put("bucket", "meetings/waits.json", b'{"job": "train-1", "reason": "a\\u001b[2J\\nstart  other"}')
    assert notice.read() == "a [2J start  other"
    gcs_here.put("bucket", "meetings/waits.json", json.dumps({"job": "train-1", "reason": "x" * 10_000_000}).encode())
    assert notice.read() == ""
    notice.say("Google says a lot: " + "é" * 10_000)  # Six bytes each, in JSON.
    assert notice.read().startswith("Google says a lot: é")


def test_a_store_that_does_not_answer_says_nothing_and_hears_it_the_next_time(gcs_here: GcsEmulator) -> None:
    notice = SliceNotice("gs://bucket/meetings", "train-1")
    gcs_here.inject("403", path="waits.json")
    notice.say(QUEUED)
    assert notice.read() == ""
    gcs_here.clear_faults()
    notice.say(QUEUED)
    assert notice.read() == QUEUED


@pytest.mark.parametrize("what", ["slices", "elements"])
@pytest.mark.usefixtures("gcs_here")
def test_a_job_of_somebody_else_under_our_labels_hides_none_of_ours(
    open_queue: Callable[[], BatchQueue], batch: BatchEmulator, what: str
) -> None:
    queue = open_queue()
    number = queue.submit(REQUEST)
    wait(lambda: queue.look([number])[number].state, lambda state: state is JobState.RUNNING)
    parent = "projects/emulated/locations/us-central1"
    foreign = batch_client(batch).get_job(name=f"{parent}/jobs/{number}")
    job = type(foreign)(task_groups=foreign.task_groups, labels=foreign.labels)
    job.task_groups[0].name = ""
    variables = job.task_groups[0].task_spec.environment.variables
    if what == "slices":
        variables["MARIN_RULES_JOB_SLICES"] = '{"step": 1}'
    else:
        job.labels["marin-array"] = "true"
        job.task_groups[0].task_environments = [{"variables": {"X": "1"}}]
    batch_client(batch).create_job(parent=parent, job=job, job_id="planted", timeout=10)
    wait(lambda: open_queue().jobs(), lambda jobs: number in jobs)
    wait(batch.processes, lambda pids: len(pids) >= 2)
    found = open_queue().jobs()
    assert number in found
    assert "planted" not in found


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("v4-8, Spot, in us-central2-b: WAITING_FOR_RESOURCES", "if that lasts, name more zones"),
        ("v4-8, Spot, in us-central2-b: could not create: Quota limit 'TPUS' has been exceeded", "iam-admin/quotas"),
        ("v4-8, Spot, in us-central2-b, was not available: no more capacity in the zone", "Google has none there now"),
        ("could not list TPU slices: Deadline Exceeded", "its worker keeps trying"),
        (
            "v4-8, Spot, in us-central2-b, was still WAITING_FOR_RESOURCES after 1800 s",
            "if that lasts, name more zones",
        ),
        ("v4-8, Spot, in us-central2-b: CREATING", None),
        ("v4-8, Spot, in us-central2-b: PROVISIONING", None),
    ],
)
def test_what_to_do_about_it(why: str, words: str | None) -> None:
    advice = advice_about(no_slice(why))
    assert advice is None if words is None else words in str(advice)


def test_a_job_without_slices_is_asked_for_none(open_queue: Callable[[], BatchQueue], batch: BatchEmulator) -> None:
    queue = open_queue()
    number = queue.submit(replace(REQUEST, resources={"gcp_region": "us-central1"}))
    wait(lambda: queue.look([number])[number].state, lambda state: state is JobState.RUNNING)
    assert not batch.calls("GetJob")
