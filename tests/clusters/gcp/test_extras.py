"""TPU slices as what is beside the jobs of a project: listed in whatever state, and deleted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from marin_rules.clusters.gcp import names
from marin_rules.clusters.gcp.calls import Calls
from marin_rules.clusters.gcp.job_queue import BatchQueue
from marin_rules.clusters.gcp.offers import Offer
from marin_rules.clusters.gcp.site import GcpSite
from marin_rules.clusters.gcp.slices import SliceRequest, Slices
from marin_rules.clusters.gcp.tpu_supply import TpuSupply
from marin_rules.clusters.protocol import BusyError, Extra, JobTag
from support.emulators.tpu.emulator import TpuEmulator
from support.emulators.waiting import wait

TAG = JobTag.of("run-1", "train-0123ab", "gs://bucket/train-0123ab")
ZONE = "us-central1-a"
SITE = GcpSite("lab", "emulated", ("us-central1",), tpus={"v5litepod": TpuSupply((ZONE,), "v2-alpha-tpuv5-lite")})


@pytest.fixture
def slices(tpu: TpuEmulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slices]:
    monkeypatch.setenv("TPU_EMULATOR_HOST", tpu.address)
    monkeypatch.setenv("BATCH_EMULATOR_HOST", "127.0.0.1:1")  # Nobody is asked for jobs.
    found = Slices("emulated", calls=Calls(5.0, 5.0))
    yield found
    found.close()


@pytest.fixture
def queue(slices: Slices) -> Iterator[BatchQueue]:
    found = BatchQueue(SITE, owner="ann", calls=Calls(5.0, 5.0))
    yield found
    found.close()


def create(slices: Slices, name: str, owner: str = "ann") -> None:
    labels = {**names.tag_labels(TAG), names.OURS: "true", names.OWNER: owner}
    offer = Offer("v5litepod-8", ZONE, "v2-alpha-tpuv5-lite", spot=True)
    slices.create(SliceRequest(name, offer, 1, "true", labels=labels))


def test_slices_of_a_user_are_listed_in_every_state_and_removed(
    queue: BatchQueue, slices: Slices, tpu: TpuEmulator
) -> None:
    for name in ("runs", "suspended", "failed"):
        create(slices, name)
    create(slices, "of-another", owner="bob")
    wait(lambda: slices.look(ZONE, "suspended").state.name, lambda state: state == "READY")
    tpu.preempt("suspended")
    tpu.fail("failed")
    found = {extra.id: extra for extra in queue.extras()}
    assert {name: extra.state for name, extra in found.items()} == {
        f"{ZONE}/runs": "ACTIVE",
        f"{ZONE}/suspended": "SUSPENDED",
        f"{ZONE}/failed": "FAILED",
    }
    assert found[f"{ZONE}/runs"] == Extra(f"{ZONE}/runs", f"TPU slice runs in {ZONE}", "ACTIVE", TAG)
    for extra in found.values():
        queue.remove(extra)
        queue.remove(extra)  # One that is gone is no error.
    assert queue.extras() == []
    assert [left.id for left in slices.find({})] == ["of-another"]


def test_a_slice_that_is_being_deleted_is_not_left_over(queue: BatchQueue, slices: Slices, tpu: TpuEmulator) -> None:
    create(slices, "going")
    tpu.hold("DELETING")
    slices.delete(ZONE, "going")
    assert [found.state for found in slices.find({})] == ["DELETING"]
    assert queue.extras() == []


def test_a_zone_that_does_not_answer_may_have_some(queue: BatchQueue, tpu: TpuEmulator) -> None:
    tpu.silence("us-east5-b")  # Which the project does not use.
    assert queue.extras() == []
    tpu.silence(ZONE)
    with pytest.raises(BusyError, match=f"Cloud TPU does not answer for {ZONE}"):
        queue.extras()


def test_a_project_without_tpus_is_not_asked(slices: Slices, tpu: TpuEmulator) -> None:
    tpu.forget_calls()
    assert BatchQueue(GcpSite("lab", "emulated", ("us-central1",))).extras() == []
    assert tpu.calls() == []
