"""TPU slices as the worker of a step has them, watches them and gives them back: Google's client, on the emulator.

Hosts run trivial scripts here; what is told of them is `test_hosts`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from marin_rules.clusters.gcp.calls import Calls
from marin_rules.clusters.gcp.host_ranks import NoMachinesError
from marin_rules.clusters.gcp.meeting import Meeting, Pace
from marin_rules.clusters.gcp.offers import EARLY_SECONDS, Offer
from marin_rules.clusters.gcp.slice_host import read_tpu_env, slice_number_in
from marin_rules.clusters.gcp.slice_machines import SliceMachines, SlicePlan, ZoneMemory
from marin_rules.clusters.gcp.slice_notice import SliceNotice
from marin_rules.clusters.gcp.slice_states import SliceState
from marin_rules.clusters.gcp.slices import SliceRequest, Slices
from marin_rules.storage.objects.open import open_objects
from support.emulators.gcs.emulator import GcsEmulator
from support.emulators.tpu.clients import tpu_client
from support.emulators.tpu.emulator import TpuEmulator
from support.emulators.waiting import wait

PACE = Pace(look=0.01)
"""Two hundred times as fast."""

CENTRAL = Offer("v5litepod-8", "us-central1-a", "v2-alpha-tpuv5-lite", spot=True)
EAST = replace(CENTRAL, zone="us-east5-b")
BOUGHT = replace(CENTRAL, spot=False)
ZONES = "gs://bucket/meetings/zones.json"


class Lab:
    """Workers of one step, and what they say."""

    def __init__(self, tpu: TpuEmulator) -> None:
        self.tpu = tpu
        self.said: list[str] = []
        self.is_stopped = False
        self.opened: list[Slices] = []

    def slices(self, retry_seconds: float = 5.0, call_seconds: float = 5.0) -> Slices:
        self.opened.append(Slices("emulated", calls=Calls(retry_seconds, call_seconds)))
        return self.opened[-1]

    def worker(
        self,
        *offers: Offer,
        job: str = "train-1",
        step: str = "train",
        script: str = "exec sleep 60",
        slices: int = 1,
        hosts: int = 1,
        pace: Pace = PACE,
        **calls: float,
    ) -> SliceMachines:
        """The machines of a worker that is in this job."""
        offers = offers or (CENTRAL,)
        plan = SlicePlan(
            step=step,
            identity=f"{step} place",
            job=job,
            offers=offers,
            slices=slices,
            hosts=hosts,
            place=f"gs://bucket/meetings/{step}",
            zone_memory=ZONES,
            request=SliceRequest("", offers[0], slices, "", labels={"marin-run": "run-1", "team": "speech"}),
            script_for=lambda meeting, slice_id, zone: f"# {meeting.folder} {slice_id} {zone}\n{script}",
        )
        return SliceMachines(plan, self.slices(**calls), pace)

    def obtain(self, machines: SliceMachines) -> Meeting | None:
        return machines.obtain(lambda: self.is_stopped, self.said.append)

    def in_background(self, machines: SliceMachines) -> tuple[threading.Thread, list[Meeting | None]]:
        found: list[Meeting | None] = []
        thread = threading.Thread(target=lambda: found.append(self.obtain(machines)), daemon=True)
        thread.start()
        return thread, found

    def there(self) -> dict[str, str]:
        """All queued resources, whatever their state: zones by ids."""
        return {found.id: found.zone for found in self.slices().find({})}

    def creations(self) -> list[dict[str, Any]]:
        return [call.request for call in self.tpu.calls("CreateQueuedResource")]

    def waits_for(self, job: str = "train-1", step: str = "train") -> str:
        """What the driver is told of a job's worker."""
        return SliceNotice(f"gs://bucket/meetings/{step}", job).read()

    def heard(self, words: str) -> list[str]:
        return [line for line in self.said if words in line]


@pytest.fixture
def lab(tpu: TpuEmulator, gcs_here: GcsEmulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("TPU_EMULATOR_HOST", tpu.address)
    tpu.forget_calls()
    found = Lab(tpu)
    yield found
    for slices in found.opened:
        slices.close()


def the_one(lab: Lab) -> str:
    (slice_id,) = lab.there()
    return slice_id


# --- having one


def test_a_slice_is_created_once_with_all_that_it_needs(lab: Lab) -> None:
    machines = lab.worker()
    meeting = lab.obtain(machines)
    slice_id = the_one(lab)
    assert meeting is not None
    assert meeting.folder == f"gs://bucket/meetings/train/{slice_id}"
    assert machines.facts == {
        "machines": "TPU v5litepod-8",
        "tpu": "v5litepod-8",
        "zone": "us-central1-a",
        "slice": slice_id,
        "slices": 1,
        "hosts": 1,
        "provisioning": "Spot",
    }
    (creation,) = lab.creations()
    resource = creation["queuedResource"]
    assert resource["spot"] == {}
    assert resource["queueingPolicy"] == {"validUntilDuration": "3600s"}
    (spec,) = resource["tpu"]["nodeSpec"]
    assert spec["nodeId"] == creation["queuedResourceId"] == slice_id
    node = spec["node"]
    assert (node["acceleratorType"], node["runtimeVersion"]) == ("v5litepod-8", "v2-alpha-tpuv5-lite")
    assert node["metadata"]["startup-script"] == f"# {meeting.folder} {slice_id} us-central1-a\nexec sleep 60"
    assert {"marin-run": "run-1", "team": "speech", "marin-accelerator": "v5litepod-8"}.items() <= node[
        "labels"
    ].items()
    assert lab.obtain(machines) is not None
    assert len(lab.creations()) == 1
    assert machines.lost() is None
    machines.release()
    assert lab.there() == {}
    assert lab.tpu.processes() == []


@pytest.mark.parametrize(
    ("offer", "expected", "node"),
    [
        (BOUGHT, {}, {"acceleratorType": "v5litepod-8"}),
        (
            replace(BOUGHT, reservation="lab"),
            {"reservationName": "projects/emulated/locations/us-central1-a/reservations/lab", "guaranteed": {}},
            {"acceleratorType": "v5litepod-8"},
        ),
        (
            replace(BOUGHT, reservation="projects/other/locations/us-central1-a/reservations/lab"),
            {"reservationName": "projects/other/locations/us-central1-a/reservations/lab", "guaranteed": {}},
            {"acceleratorType": "v5litepod-8"},
        ),
        (
            replace(CENTRAL, topology="2x4"),
            {"spot": {}},
            {"acceleratorConfig": {"type": "V5LITE_POD", "topology": "2x4"}},
        ),
    ],
)
def test_ways_to_have_a_slice(lab: Lab, offer: Offer, expected: dict[str, Any], node: dict[str, Any]) -> None:
    """The emulator refuses what Google's discovery document does not have."""
    slices = lab.slices()
    request = SliceRequest(
        "one",
        offer,
        1,
        "true",
        network="global/networks/lab",
        subnetwork="regions/us-central1/subnetworks/lab",
        external_address=False,
        service_account="jobs@emulated.iam.gserviceaccount.com",
    )
    assert slices.create(request)
    resource = lab.creations()[0]["queuedResource"]
    kept = ("spot", "reservationName", "guaranteed")
    assert {name: resource[name] for name in kept if name in resource} == expected
    made = resource["tpu"]["nodeSpec"][0]["node"]
    assert {name: made[name] for name in ("acceleratorType", "acceleratorConfig") if name in made} == node
    assert made["networkConfig"] == {
        "network": "global/networks/lab",
        "subnetwork": "regions/us-central1/subnetworks/lab",
    }
    assert made["serviceAccount"]["email"] == "jobs@emulated.iam.gserviceaccount.com"


def test_a_slice_is_ready_though_its_nodes_know_the_project_by_its_number(lab: Lab) -> None:
    slices = lab.slices()
    slices.create(SliceRequest("train-1", CENTRAL, 1, "exec sleep 60"))
    wait(lambda: slices.look(CENTRAL.zone, "train-1").state, lambda state: state is SliceState.READY)
    (node,) = tpu_client(lab.tpu).list_nodes(parent="projects/emulated/locations/us-central1-a")
    assert node.queued_resource == "projects/123456789012/locations/us-central1-a/queuedResources/train-1"


def test_an_answer_that_is_lost_makes_no_second_slice(lab: Lab) -> None:
    lab.tpu.inject("lost", methods=["CreateQueuedResource"], times=2)
    assert lab.obtain(lab.worker()) is not None
    assert len(lab.there()) == 1


def test_one_of_which_nobody_knows_whether_it_is_there_does_not_come_later(lab: Lab) -> None:
    lab.tpu.inject("lost", methods=["CreateQueuedResource"], times=1)
    assert lab.obtain(lab.worker(CENTRAL, EAST, retry_seconds=1e-6)) is not None
    assert list(lab.there().values()) == ["us-east5-b"]


@pytest.mark.parametrize("method", ["ListQueuedResources", "CreateQueuedResource", "GetQueuedResource", "ListNodes"])
@pytest.mark.parametrize("fault", ["RESOURCE_EXHAUSTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"])
def test_a_service_that_is_busy_for_a_while_is_asked_again(lab: Lab, method: str, fault: str) -> None:
    lab.tpu.inject(fault, methods=[method], times=1)
    assert lab.obtain(lab.worker()) is not None
    assert len(lab.there()) == 1


@pytest.mark.parametrize(
    "method",
    ["ListQueuedResources", "CreateQueuedResource", "GetQueuedResource", "ListNodes", "DeleteQueuedResource"],
)
def test_a_call_that_hangs_is_given_up_and_made_again(lab: Lab, method: str) -> None:
    lab.tpu.inject("hang", methods=[method], times=1)
    machines = lab.worker(call_seconds=0.3)
    assert lab.obtain(machines) is not None
    assert len(lab.there()) == 1
    machines.release()
    assert lab.there() == {}


def test_no_slice_is_asked_for_before_those_of_the_step_are_known(lab: Lab) -> None:
    lab.obtain(lab.worker(CENTRAL, EAST))
    before = lab.there()
    lab.tpu.silence("us-central1-a")
    thread, found = lab.in_background(lab.worker(CENTRAL, EAST))
    wait(lambda: lab.heard("Cloud TPU does not answer for us-central1-a; will try again"), bool)
    lab.tpu.silence("us-east1-d")  # Which the step has no use for.
    thread.join(20)
    assert found[0] is not None
    assert lab.there() == before
    assert len(lab.heard("does not answer")) == 1


def test_a_stop_ends_every_wait(lab: Lab) -> None:
    lab.tpu.hold("WAITING_FOR_RESOURCES")
    machines = lab.worker()
    thread, found = lab.in_background(machines)
    wait(lambda: lab.heard("is WAITING_FOR_RESOURCES"), bool)
    wait(lab.waits_for, lambda why: why == "no TPU slice (v5litepod-8, Spot, in us-central1-a: WAITING_FOR_RESOURCES)")
    assert lab.waits_for("train-2") == "", "of another job nobody has said anything"
    lab.is_stopped = True
    thread.join(20)
    assert found == [None]
    machines.release()
    assert lab.there() == {}


# --- what an earlier worker has left


def test_the_slice_of_an_earlier_worker_is_used_again(lab: Lab) -> None:
    first = lab.obtain(lab.worker(BOUGHT, CENTRAL, job="train-1"))
    before = the_one(lab)
    machines = lab.worker(EAST, CENTRAL, BOUGHT, job="train-2")
    again = lab.obtain(machines)
    assert first is not None
    assert again is not None
    assert again.folder == first.folder
    assert len(lab.creations()) == 1
    assert (machines.facts["slice"], machines.facts["provisioning"]) == (before, "on demand")


@pytest.mark.parametrize(
    "other",
    [
        {"script": "exec sleep 61"},
        {"offers": [replace(CENTRAL, runtime_version="v2-alpha-tpuv6e")]},
        {"offers": [BOUGHT]},
        {"offers": [EAST]},
        {"offers": [replace(CENTRAL, accelerator="v5litepod-4")]},
        {"slices": 2},
    ],
    ids=["script", "runtime", "way", "zone", "type", "count"],
)
def test_one_that_is_not_what_is_wanted_is_deleted(lab: Lab, other: dict[str, Any]) -> None:
    lab.obtain(lab.worker(job="train-1"))
    before = the_one(lab)
    assert lab.obtain(lab.worker(*other.pop("offers", ()), job="train-2", **other)) is not None
    assert before not in lab.there()
    assert len(lab.there()) == 1
    assert len(lab.heard(f"TPU slice {before} in us-central1-a is left over (ACTIVE) and will be deleted")) == 1


@pytest.mark.parametrize("end", ["SUSPENDED", "FAILED"])
def test_one_that_is_no_good_any_more_is_deleted(lab: Lab, end: str) -> None:
    """It still uses up quota."""
    lab.obtain(lab.worker(job="train-1"))
    before = the_one(lab)
    if end == "SUSPENDED":
        lab.tpu.preempt(before)
    else:
        lab.tpu.fail(before)
    lab.tpu.set_quota(1)
    assert lab.obtain(lab.worker(job="train-2")) is not None
    assert the_one(lab) != before
    assert len(lab.heard(f"is left over ({end}) and will be deleted")) == 1


def test_slices_of_other_steps_are_left_alone(lab: Lab) -> None:
    lab.obtain(lab.worker(step="eval"))
    other = the_one(lab)
    lab.obtain(lab.worker(step="train"))
    assert other in lab.there()
    assert len(lab.there()) == 2


def test_a_name_is_never_used_twice(lab: Lab) -> None:
    """Google answers a second creation of the same name with the first, and hosts would read the words of others."""
    folders = set()
    for job in ("train-1", "train-2"):
        machines = lab.worker(job=job)
        for _ in range(2):
            meeting = lab.obtain(machines)
            assert meeting is not None
            folders.add(meeting.folder)
            machines.replace("for a test")
    assert len(folders) == 4
    assert len({creation["queuedResourceId"] for creation in lab.creations()}) == len(lab.creations()) == 4


def test_one_that_is_being_deleted_is_left_alone(lab: Lab) -> None:
    lab.tpu.hold("DELETING")
    machines = lab.worker()
    lab.obtain(machines)
    machines.replace("for a test")
    assert lab.obtain(machines) is not None
    assert len(lab.there()) == 2
    assert not lab.heard("is left over")
    assert len(lab.tpu.calls("DeleteQueuedResource")) == 1


def test_a_slice_that_was_given_up_is_not_taken_over_again(lab: Lab) -> None:
    machines = lab.worker(retry_seconds=0.01)
    lab.obtain(machines)
    before = the_one(lab)
    lab.tpu.inject("UNAVAILABLE", methods=["DeleteQueuedResource"])
    machines.replace("its TPU is broken")
    assert the_one(lab) == before
    lab.tpu.clear_faults()
    assert lab.obtain(machines) is not None
    assert the_one(lab) != before


# --- one that does not come


def test_a_slice_that_does_not_come_in_time_is_given_up_for_the_next_offer(lab: Lab) -> None:
    lab.tpu.hold("WAITING_FOR_RESOURCES")
    thread, found = lab.in_background(lab.worker(replace(CENTRAL, wait_seconds=60.0), EAST))
    wait(lambda: lab.there(), lambda there: list(there.values()) == ["us-east5-b"])
    (told,) = lab.heard("in us-central1-a) was still WAITING_FOR_RESOURCES after 0 s")
    assert "name more zones" in told
    assert "on_demand: true" in told
    # It was said at once that there is a queue, not only when it was given up.
    assert lab.said.index(lab.heard("is WAITING_FOR_RESOURCES")[0]) < lab.said.index(told)
    lab.tpu.hold()
    thread.join(20)
    assert found[0] is not None


def test_ways_to_have_a_slice_in_the_same_zone_have_their_turn(lab: Lab) -> None:
    lab.tpu.hold("WAITING_FOR_RESOURCES")
    quick = [replace(offer, wait_seconds=1.0) for offer in (CENTRAL, BOUGHT)]
    thread, _ = lab.in_background(lab.worker(*quick))
    wait(lambda: len(lab.creations()), lambda count: count >= 4)
    lab.is_stopped = True
    thread.join(20)
    assert ["spot" in creation["queuedResource"] for creation in lab.creations()][:4] == [True, False, True, False]
    assert len(lab.heard("no TPU slice is available now; all offers will be tried again")) >= 1


def test_a_stock_out_is_said_with_what_to_do_and_the_next_offer_is_tried(lab: Lab) -> None:
    lab.tpu.hold("WAITING_FOR_RESOURCES")
    thread, found = lab.in_background(lab.worker(CENTRAL, EAST))
    wait(lambda: lab.heard("is WAITING_FOR_RESOURCES"), bool)
    lab.tpu.fail(the_one(lab))
    wait(lambda: lab.there(), lambda there: list(there.values()) == ["us-east5-b"])
    (told,) = lab.heard("was not available: There is no more capacity in the zone. ")
    assert "name more zones" in told
    lab.tpu.hold()
    thread.join(20)
    assert found[0] is not None
    assert len(lab.there()) == 1


def test_a_quota_is_said_with_what_to_do_and_all_offers_are_tried_again(lab: Lab) -> None:
    lab.tpu.set_quota(0)
    thread, found = lab.in_background(lab.worker(CENTRAL, EAST, retry_seconds=0.01))
    wait(lambda: lab.heard("no TPU slice is available now; all offers will be tried again"), bool)
    for offer in (CENTRAL, EAST):
        (told, *_) = lab.heard(f"TPU slice {offer.words}: could not create")
        assert "has been exceeded" in told
        assert "iam-admin/quotas" in told
    assert "has been exceeded" in lab.waits_for()
    lab.tpu.set_quota(None)
    thread.join(20)
    assert found[0] is not None
    assert lab.waits_for() == ""
    assert len(lab.there()) == 1


@pytest.mark.parametrize(
    ("offers", "words"),
    [
        ([replace(CENTRAL, accelerator="v4-8")], "step train gets no TPU slice: .*'v4-8' is not available in zone"),
        ([replace(CENTRAL, zone="us-west9-a"), replace(EAST, accelerator="v5p-8")], "'v5p-8' is not available in zone"),
    ],
)
def test_what_is_refused_everywhere_is_not_waited_for(lab: Lab, offers: list[Offer], words: str) -> None:
    with pytest.raises(NoMachinesError, match=words):
        lab.obtain(lab.worker(*offers))


def test_one_refusal_does_not_keep_the_next_offer_from_being_tried(lab: Lab) -> None:
    assert lab.obtain(lab.worker(replace(CENTRAL, accelerator="v4-8"), EAST)) is not None
    assert lab.there() == {the_one(lab): "us-east5-b"}


@pytest.mark.parametrize("method", ["ListQueuedResources", "CreateQueuedResource"])
def test_missing_rights_are_said_with_the_role(lab: Lab, method: str) -> None:
    lab.tpu.inject("PERMISSION_DENIED", methods=[method])
    with pytest.raises(NoMachinesError, match=r"step train gets no TPU slice: .*tpu\.admin"):
        lab.obtain(lab.worker(CENTRAL, EAST))


# --- one that is lost, and the memory of zones


def lost(machines: SliceMachines) -> str:
    return str(wait(machines.lost, lambda word: word is not None))


def test_losses_are_noticed(lab: Lab) -> None:
    machines = lab.worker(replace(CENTRAL, accelerator="v5litepod-16"), hosts=4)
    events: list[tuple[Callable[[str], None], str]] = [
        (lab.tpu.preempt, "SUSPENDED"),
        (lambda slice_id: lab.tpu.shut_down(slice_id, 2), "a node is REPAIRING"),
        (lambda slice_id: lab.slices().delete("us-central1-a", slice_id), "it was deleted"),
    ]
    for happen, reason in events:
        assert lab.obtain(machines) is not None
        slice_id = the_one(lab)
        happen(slice_id)
        word = lost(machines)
        assert word == f"TPU slice {slice_id} in us-central1-a was lost: {reason}"
        assert lab.waits_for() == ""
        machines.replace(word)
        assert lab.there() == {}
        assert f"is replaced: {word}" in lab.waits_for()
    assert [line.rpartition(": ")[2] for line in lab.heard("is replaced")] == [reason for _, reason in events]


def test_a_service_that_does_not_answer_is_no_loss(lab: Lab) -> None:
    machines = lab.worker(retry_seconds=0.01)
    lab.obtain(machines)
    lab.tpu.forget_calls()
    lab.tpu.inject("UNAVAILABLE", methods=["GetQueuedResource"])
    wait(lambda: (machines.lost(), len(lab.tpu.calls("GetQueuedResource"))), lambda found: found[1] >= 2)
    assert machines.lost() is None


def test_a_slice_that_is_lost_early_puts_its_zone_last(lab: Lab) -> None:
    machines = lab.worker(CENTRAL, EAST)
    zones = []
    for _ in range(3):
        lab.obtain(machines)
        zones.append(machines.facts["zone"])
        machines.replace("for a test")
    # Each has failed once by then, and then the first comes first again.
    assert zones == ["us-central1-a", "us-east5-b", "us-central1-a"]
    # Another step of the run knows as well.
    other = lab.worker(CENTRAL, EAST, step="eval")
    lab.obtain(other)
    assert other.facts["zone"] == "us-east5-b"


def test_a_slice_that_has_served_for_a_while_says_nothing_against_its_zone(lab: Lab) -> None:
    # Fifteen minutes are shorter than a call to the service, and a slice is waited for as long as before.
    pace = Pace(look=1e-3 / EARLY_SECONDS)
    patient = [replace(offer, wait_seconds=1e8) for offer in (CENTRAL, EAST)]
    machines = lab.worker(*patient, pace=pace)
    for _ in range(2):
        lab.obtain(machines)
        assert machines.lost() is None
        assert machines.facts["zone"] == "us-central1-a"
        machines.replace("for a test")
    assert ZoneMemory(ZONES).failures() == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"a": 1}', b'[["a", "b"]]', b"null", b"[" * 10_000])
@pytest.mark.usefixtures("lab")
def test_a_memory_that_cannot_be_read_is_begun_anew(content: bytes) -> None:
    open_objects(ZONES).put(ZONES, content)
    memory = ZoneMemory(ZONES)
    assert memory.failures() == []
    memory.note("us-central1-a")
    assert [failure.zone for failure in memory.failures()] == ["us-central1-a"]


@pytest.mark.usefixtures("lab")
def test_a_memory_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    old = [["old", now - 7200], ["ahead", now + 7200], ["new", now - 60]]
    open_objects(ZONES).put(ZONES, json.dumps(old).encode())
    memory = ZoneMemory(ZONES)
    memory.note("us-central1-a")
    assert [failure.zone for failure in memory.failures()] == ["new", "us-central1-a"]


# --- giving it back


def test_a_deletion_that_fails_is_said_with_the_command(lab: Lab) -> None:
    machines = lab.worker(retry_seconds=0.01)
    lab.obtain(machines)
    slice_id = the_one(lab)
    lab.tpu.inject("PERMISSION_DENIED", methods=["DeleteQueuedResource"])
    machines.release()
    assert lab.heard("gcloud compute tpus queued-resources delete") == [
        f"could not delete TPU slice {slice_id} in us-central1-a; its hosts will do so after a while, or run:"
        f" gcloud compute tpus queued-resources delete {slice_id} --zone=us-central1-a --force --quiet"
    ]
    machines.release()  # Not twice.
    assert len(lab.tpu.calls("DeleteQueuedResource")) == 1


def test_one_that_is_gone_already_is_given_back(lab: Lab) -> None:
    machines = lab.worker()
    lab.obtain(machines)
    lab.slices().delete("us-central1-a", the_one(lab))
    machines.release()
    assert not lab.heard("could not delete")


# --- several slices

WHO = """
for name in agent-worker-number tpu-env; do
  curl --silent -H "Metadata-Flavor: Google" http://$GCE_METADATA_HOST/computeMetadata/v1/instance/attributes/$name
  echo
done
"""


def test_several_slices_are_one_queued_resource(lab: Lab) -> None:
    machines = lab.worker(replace(CENTRAL, accelerator="v5litepod-16"), slices=2, hosts=4, script=WHO)
    assert machines.count == 8
    assert lab.obtain(machines) is not None
    slice_id = the_one(lab)
    (creation,) = lab.creations()
    (spec,) = creation["queuedResource"]["tpu"]["nodeSpec"]
    assert spec["multisliceParams"] == {"nodeCount": 2, "nodeIdPrefix": slice_id}
    assert "nodeId" not in spec
    coordinators, ranks = set(), []
    for number in range(2):
        hosts = wait(
            lambda node=f"{slice_id}-{number}": lab.tpu.lines(node),  # type: ignore[misc]
            lambda hosts: all("MEGASCALE_SLICE_ID" in " ".join(lines) for lines in hosts),
        )
        for worker, *lines in hosts:
            environment = read_tpu_env("\n".join(lines))
            coordinators.add(environment["MEGASCALE_COORDINATOR_ADDRESS"])
            ranks.append(slice_number_in(environment, slice_id) * 4 + int(worker))
    assert ranks == list(range(8))
    assert len(coordinators) == 1
    machines.release()
    assert lab.there() == {}
