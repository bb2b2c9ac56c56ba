"""Where TPU slices may be had: the `tpus:` block of cluster files, requests for TPUs, and the order of offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from marin_rules.clusters.gcp.offers import FORGET_SECONDS, Offer, ZoneFailure, in_order
from marin_rules.clusters.gcp.site import GcpSite
from marin_rules.clusters.gcp.tpu_supply import TpuSupply
from marin_rules.errors import SettingsError
from marin_rules.machines import MachineRequest
from marin_rules.resources import ResourceConfig

FILE = """
gcp:
  project: emulated
  regions: [us-central2, us-central1, us-east5]
  runtime: 4h
  max_runtime: 1d
  tpus:
    v4: {zones: [us-central2-b], worker_region: us-central1, wait: 10m, runtime_version: tpu-vm-v4-base}
    v5e: {zones: [us-central1-a, us-east5-b], on_demand: true, runtime: 2h, max_runtime: 5h}
    v6e: {zones: [us-east5-b], reservation: lab}
"""

type Reader = Callable[[str], GcpSite]


def request(kind: str | list[str], **options: Any) -> MachineRequest:
    return MachineRequest.from_resources(ResourceConfig.with_tpu(kind, **options))


def in_short(offers: list[Offer]) -> list[str]:
    return [offer.words for offer in offers]


# --- the file


def test_a_file_says_where_each_generation_is(site: Reader) -> None:
    tpus = site(FILE).tpus
    assert list(tpus) == ["v4", "v5litepod", "v6e"]
    assert tpus["v4"] == TpuSupply(
        zones=("us-central2-b",),
        runtime_version="tpu-vm-v4-base",
        worker_region="us-central1",
        wait_minutes=10,
        runtime=240,
        max_runtime=1440,
    )
    assert (tpus["v5litepod"].runtime_version, tpus["v5litepod"].runtime, tpus["v5litepod"].max_runtime) == (
        "v2-alpha-tpuv5-lite",
        120,
        300,
    )
    assert (tpus["v6e"].reservation, tpus["v6e"].spot, tpus["v6e"].on_demand) == ("lab", True, False)


@pytest.mark.parametrize(
    ("tpus", "words"),
    [
        ("{v3: {zones: [us-central1-a]}}", "'v3' is not a generation of TPUs .* write one of v4, v5litepod, v5p, v6e"),
        ("{v4: {spot: true}}", "gcp.tpus.v4 lacks the key 'zones'"),
        ("{v4: {zones: [us-central2-b]}}", "zones us-central2-b are in none of gcp.regions, us-central1"),
        ("{v4: {zones: [us-central1-a], max_runtime: 20d}}", "after 14 days"),
        ("{v4: {zones: [us-central1-a], zone: x}}", "unknown key 'zone'"),
        ("{v4: {zones: [us-central1-a], on_demand: maybe}}", "true if a slice is taken on demand"),
    ],
)
def test_a_wrong_block_is_refused_with_what_to_write(site: Reader, tpus: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        site(f"gcp: {{project: p, regions: [us-central1], tpus: {tpus}}}")


# --- the order of offers


@pytest.mark.parametrize(
    ("options", "preemptible", "ways"),
    [
        ({}, True, ["Spot"]),
        ({}, False, ["on demand"]),
        ({"spot": False}, True, ["on demand"]),
        ({"on_demand": True}, True, ["Spot", "on demand"]),
        ({"reservation": "lab"}, True, ["reserved", "Spot"]),
        ({"reservation": "lab"}, False, ["reserved"]),
        ({"reservation": "lab", "spot": False}, True, ["reserved"]),
        ({"reservation": "lab", "on_demand": True}, True, ["reserved", "Spot", "on demand"]),
    ],
)
def test_a_reservation_comes_first_then_spot_then_on_demand(
    options: dict[str, Any], preemptible: bool, ways: list[str]
) -> None:
    supply = TpuSupply(("a", "b"), "base", **options)
    found = [(offer.way, offer.zone) for offer in supply.offers("v4-8", preemptible, None)]
    assert found == [(way, zone) for way in ways for zone in ("a", "b")]


def test_an_offer_holds_all_that_a_slice_needs() -> None:
    supply = TpuSupply(("a",), "base", reservation="lab", wait_minutes=2)
    (reserved, spot) = supply.offers("v4-16", True, "2x2x2")
    assert reserved == Offer("v4-16", "a", "base", reservation="lab", topology="2x2x2", wait_seconds=120.0)
    assert spot == Offer("v4-16", "a", "base", spot=True, topology="2x2x2", wait_seconds=120.0)
    assert Offer.from_fields(reserved.to_fields()) == reserved
    assert Offer.from_fields(spot.to_fields()) == spot


NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("failures", "order"),
    [
        ([], "abc"),
        ([("a", 0)], "bca"),
        ([("a", 0), ("a", 10), ("b", 0)], "cba"),
        ([("a", FORGET_SECONDS - 1)], "bca"),
        ([("a", FORGET_SECONDS + 1)], "abc"),
        # By a clock that is ahead of ours: a little, and by a day.
        ([("a", -60)], "bca"),
        ([("a", -86400)], "abc"),
        ([("elsewhere", 0)], "abc"),
    ],
)
def test_zones_with_recent_failures_come_last(failures: list[tuple[str, float]], order: str) -> None:
    offers = [Offer("v4-8", zone, "base") for zone in "abc"]
    found = in_order(offers, [ZoneFailure(zone, NOW - age) for zone, age in failures], NOW)
    assert "".join(offer.zone for offer in found) == order


def test_offers_in_equal_zones_stay_in_their_order() -> None:
    offers = [Offer("v4-8", zone, "base", spot=spot) for spot in (True, False) for zone in "ab"]
    found = in_order(offers, [ZoneFailure("a", NOW)], NOW)
    assert [(offer.zone, offer.spot) for offer in found] == [("b", True), ("b", False), ("a", True), ("a", False)]


# --- requests


def test_a_tpu_step_has_a_small_machine_for_its_worker_and_offers_for_its_slice(site: Reader) -> None:
    found = site(FILE).resources(request("v4-128", ram="64g"), "train")
    assert found == {
        "mem_mb": 64 * 1024,
        "disk_mb": found["disk_mb"],
        "runtime": 240,
        "nodes": 1,
        "cpus_per_task": found["cpus_per_task"],
        "gcp_region": "us-central1",
        "gcp_machine_type": "e2-highcpu-2",
        "gcp_provisioning": "STANDARD",
        "gcp_image": None,
        "gcp_tpu": "v4-128",
        "gcp_tpu_topology": None,
        "gcp_tpu_slices": 1,
        "gcp_tpu_zones": "us-central2-b",
        "gcp_tpu_provisioning": "SPOT",
    }
    assert site(FILE).describe(found) == "TPU v4-128, Spot, us-central2-b, 4h"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (request("v4-8", preemptible=False), {"gcp_tpu_provisioning": "STANDARD"}),
        (request("v4-16", slice_count=2), {"gcp_tpu_slices": 2, "nodes": 1}),
        # Without a region of its own, the worker is where the slice is tried first.
        (request("v5litepod-8"), {"gcp_region": "us-central1", "gcp_tpu_zones": "us-central1-a us-east5-b"}),
        (request("v5litepod-8", zone="us-east5-b"), {"gcp_region": "us-east5", "gcp_tpu_zones": "us-east5-b"}),
        (request("v6e-8"), {"gcp_region": "us-east5", "gcp_tpu_provisioning": "SPOT"}),
        (request("v6e-8", preemptible=False), {"gcp_tpu_provisioning": "STANDARD"}),
        (request("v6e-8", image="lab/tpu:1"), {"gcp_image": "lab/tpu:1"}),
        (
            request(["v5litepod-8", "v6e-8"]),
            {"gcp_tpu": "v5litepod-8 v6e-8", "gcp_tpu_zones": "us-central1-a us-east5-b"},
        ),
        # A type that the file lacks is passed over, its alternative is not.
        (request(["v5p-8", "v6e-4"]), {"gcp_tpu": "v6e-4", "gcp_region": "us-east5"}),
        # So is one that is not to be had in that zone: the worker's machine and time are those of the other.
        (
            request(["v4-8", "v5litepod-4"], zone="us-east5-b"),
            {"gcp_tpu": "v5litepod-4", "gcp_region": "us-east5", "runtime": 120},
        ),
    ],
)
def test_what_is_asked_for_becomes_resources(site: Reader, asked: MachineRequest, expected: dict[str, Any]) -> None:
    found = site(FILE).resources(asked, "train")
    assert {name: found[name] for name in expected} == expected


def test_time_grows_with_each_attempt_up_to_what_there_is(site: Reader) -> None:
    found = site(FILE)
    assert [found.resources(request("v5litepod-8"), "s", attempt)["runtime"] for attempt in (1, 2, 3)] == [
        120,
        240,
        300,
    ]


def test_slices_are_had_where_the_data_are(site: Reader) -> None:
    found = site(FILE).resources(request("v5litepod-8"), "train", regions=["us-east5"])
    assert (found["gcp_region"], found["gcp_tpu_zones"]) == ("us-east5", "us-east5-b")


@pytest.mark.parametrize(
    ("asked", "regions", "words"),
    [
        (
            request("v5p-8"),
            None,
            "step 'train' asks for a TPU v5p-8; cluster lab has no GPUs and TPUs v4 in us-central2-b, v5litepod in"
            " us-central1-a and us-east5-b, v6e in us-east5-b",
        ),
        (
            request("v4-8"),
            ["us-east5"],
            "asks for a TPU v4-8 in us-east5, where cluster lab has none: TPUs v4 in us-central2-b",
        ),
        (
            request("v4-8", zone="us-central1-a"),
            None,
            "asks for a TPU v4-8 in us-central1-a, where cluster lab has none",
        ),
        (
            request("v4-8", zone="us-east1-d"),
            None,
            "asks for zone us-east1-d, but cluster lab runs jobs in us-central2",
        ),
    ],
)
def test_slices_that_there_are_not_are_refused_with_what_there_is(
    site: Reader, asked: MachineRequest, regions: list[str] | None, words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        site(FILE).resources(asked, "train", regions=regions)


def test_offers_are_by_type_then_by_way_then_by_zone(site: Reader) -> None:
    assert in_short(site(FILE).offers(["v5litepod-8", "v6e-8"], preemptible=True)) == [
        "v5litepod-8, Spot, in us-central1-a",
        "v5litepod-8, Spot, in us-east5-b",
        "v5litepod-8, on demand, in us-central1-a",
        "v5litepod-8, on demand, in us-east5-b",
        "v6e-8, reserved, in us-east5-b",
        "v6e-8, Spot, in us-east5-b",
    ]
    assert in_short(site(FILE).offers(["v5litepod-8"], preemptible=True, zones=["us-east5-b"])) == [
        "v5litepod-8, Spot, in us-east5-b",
        "v5litepod-8, on demand, in us-east5-b",
    ]


def test_the_offers_of_a_job_are_those_of_its_resources(site: Reader) -> None:
    """What a user changes with set-resources is heeded, and nothing is lost on the way."""
    found = site(FILE)
    resources = found.resources(request("v6e-8"), "train")
    assert in_short(found.offers_for(resources)) == ["v6e-8, reserved, in us-east5-b", "v6e-8, Spot, in us-east5-b"]
    assert in_short(found.offers_for({**resources, "gcp_tpu_provisioning": "STANDARD"})) == [
        "v6e-8, reserved, in us-east5-b"
    ]
