"""What an hour of a job on Google Cloud costs.

The oracle is the list of whole machines that the prices of their parts were computed from, as it has other machines
than the two that were used: what is computed here has to come out there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin_rules.clusters.gcp.machine_types import SERIES
from marin_rules.clusters.gcp.offers import Offer
from marin_rules.clusters.gcp.prices import PriceTables, hourly_price, merged, price_tables, read_tables
from marin_rules.clusters.gcp.site import GcpSite
from marin_rules.clusters.prices import UNKNOWN, Price
from marin_rules.errors import SettingsError
from marin_rules.machines import MachineRequest
from marin_rules.resources import ResourceConfig

FEBRUARY = "2026-02-12"


def priced(machine: str, region: str, provisioning: str | None = None, **more: Any) -> Price:
    resources = {"gcp_machine_type": machine, "gcp_region": region, "gcp_provisioning": provisioning, **more}
    return hourly_price(resources, price_tables())


@pytest.mark.parametrize(
    ("machine", "region", "on_demand", "spot"),
    [
        ("e2-standard-2", "us-central1", 0.06701142, 0.03094),
        ("e2-highmem-8", "us-east5", 0.36159864, 0.090864),
        ("e2-highmem-8", "europe-west4", 0.39806928, 0.15776),
        ("n1-highmem-32", "us-east4", 2.131728, 0.442256),
        ("n1-standard-32", "europe-west4", 1.673344, 0.66936),
        ("n2-standard-32", "us-east1", 1.553888, 0.483904),
        ("n2-highmem-32", "us-west4", 2.360672, 0.91328),
        ("n2-standard-48", "europe-west4", 2.565984, 0.8928),
        ("n4-highcpu-48", "us-east5", 1.83696, 0.495936),
        ("n4-highmem-32", "us-west4", 2.144835712, 1.072384),
        ("n4-highmem-48", "europe-west4", 2.999304, 0.793536),
        ("a2-highgpu-2g", "us-east5", 7.34677, 3.25989),
        ("a2-ultragpu-2g", "us-west4", 11.4154649589041, 3.31941424657534),
        ("a3-highgpu-2g", "europe-west4", 28.1351197938082, 5.88194876712329),
        ("a3-highgpu-8g", "us-east4", 88.5557561512329, 19.408200109589),
        ("a3-megagpu-8g", "us-east5", 94.0666410145753, 19.7233095890411),
    ],
)
def test_machines_cost_what_the_list_of_whole_machines_says(
    machine: str, region: str, on_demand: float, spot: float
) -> None:
    for provisioning, dollars in ((None, on_demand), ("STANDARD", on_demand), ("SPOT", spot)):
        price = priced(machine, region, provisioning)
        assert price.dollars == pytest.approx(dollars, rel=1e-6)
        assert (price.date, "Cyclenerd" in price.source) == (FEBRUARY, True)


def test_an_l4_machine() -> None:
    """g2-standard-24 has two L4, so twice the GPU of g2-standard-12, and twice all else."""
    one, two = priced("g2-standard-12", "us-central1"), priced("g2-standard-24", "us-central1")
    assert one.dollars == pytest.approx(1.000416287)
    assert two.dollars == pytest.approx(2 * 1.000416287)


def test_several_machines_cost_that_much_more() -> None:
    assert priced("e2-standard-2", "us-central1", nodes=3).dollars == pytest.approx(3 * 0.06701142)


def test_the_newer_of_two_prices_wins() -> None:
    spot, on_demand = priced("a3-highgpu-8g", "us-central1", "SPOT"), priced("a3-highgpu-8g", "us-central1")
    assert (spot.dollars, spot.date) == (pytest.approx(8 * 6.571), "2026-09-26")
    assert (on_demand.dollars, on_demand.date) == (pytest.approx(88.4899999), FEBRUARY)
    assert priced("a3-highgpu-8g", "us-east1", "SPOT").date == FEBRUARY


SPOT, ON_DEMAND, RESERVED = {"spot": True}, {}, {"reservation": "lab"}


def slices(*offers: tuple[str, str, dict[str, Any]], number: int | None = None) -> Price:
    """What a step costs that may get these, beside the machine of its worker."""
    resources = {"gcp_machine_type": "e2-standard-2", "gcp_region": "us-central1", "gcp_tpu": "x", "nodes": 16}
    found = [Offer(kind, zone, "tpu-ubuntu2204-base", **way) for kind, zone, way in offers]
    return hourly_price({**resources, "gcp_tpu_slices": number}, price_tables(), found)


@pytest.mark.parametrize(
    ("offers", "dollars"),
    [
        ([("v4-128", "us-central2-b", SPOT)], 64 * 0.92),
        ([("v4-128", "us-central2-b", ON_DEMAND)], 64 * 3.22),
        ([("v4-8", "us-central2-b", ON_DEMAND)], 4 * 3.22),
        ([("v5litepod-16", "us-central1-a", ON_DEMAND)], 16 * 1.20),
        ([("v5p-8", "us-central1-a", ON_DEMAND)], 4 * 4.20),
        ([("v6e-8", "us-east1-d", SPOT)], 8 * 0.65),
        ([("v6e-8", "us-east1-d", SPOT), ("v6e-8", "us-east5-a", SPOT)], 8 * 1.54),  # The dearest.
        ([("v6e-8", "us-east1-d", SPOT), ("v6e-8", "us-east1-d", ON_DEMAND)], 8 * 2.70),
        ([("v5p-8", "us-east5-a", SPOT), ("v6e-4", "us-east1-d", SPOT)], 4 * 1.06),
    ],
)
def test_tpu_slices(offers: list[tuple[str, str, dict[str, Any]]], dollars: float) -> None:
    """Beside the machine of the worker, of which there is one, however many hosts they have."""
    price = slices(*offers)
    assert price.dollars == pytest.approx(dollars + 0.06701142)
    assert price.date == FEBRUARY, "that of the older price"
    assert "SkyPilot" in price.source
    assert slices(*offers, number=3).dollars == pytest.approx(3 * dollars + 0.06701142)


@pytest.mark.parametrize(
    "offers",
    [
        [],
        [("v9-8", "us-central1-a", SPOT)],
        [("v5p-8", "us-east5-a", ON_DEMAND)],
        [("v6e-8", "us-east1-d", SPOT), ("v6e-8", "asia-east1-c", SPOT)],
        [("v6e-8", "us-east1-d", RESERVED), ("v6e-8", "us-east1-d", SPOT)],
    ],
)
def test_a_slice_that_may_cost_anything_has_no_price(offers: list[tuple[str, str, dict[str, Any]]]) -> None:
    assert slices(*offers) == UNKNOWN


def test_a_site_prices_what_it_would_ask_for(site: Callable[[str], GcpSite]) -> None:
    """A v4-128 as Spot, or where there is none on demand, and its worker on an e2-highcpu-2 elsewhere."""
    v4 = "v4: {zones: [us-central2-b], worker_region: us-central1, on_demand: true}"
    found = site(f"gcp: {{project: lab, regions: [us-central2, us-central1], tpus: {{{v4}}}}}")
    request = MachineRequest.from_resources(ResourceConfig.with_tpu("v4-128"))
    resources = found.resources(request, "train")
    assert resources["gcp_machine_type"] == "e2-highcpu-2"
    assert found.price(resources).dollars == pytest.approx(64 * 3.22 + 2 * 0.02181159 + 2 * 0.00292353)


@pytest.mark.parametrize(
    "resources",
    [
        {},
        {"gcp_machine_type": None},
        {"gcp_machine_type": "e2-custom-4-8192"},
        {"gcp_machine_type": "a4-highgpu-8g"},
        {"gcp_region": "asia-east1"},
        {"gcp_region": None},
        {"gcp_provisioning": "FLEX_START"},
        {"gcp_provisioning": "RESERVATION_BOUND"},
        {"gcp_reservation": "projects/p/reservations/r"},
        {"gcp_machine_type": "n1-standard-8", "gcp_gpu": "nvidia-tesla-t4:1"},
        {"gcp_machine_type": "a3-ultragpu-8g", "gcp_region": "europe-west4"},  # Only its Spot price is known.
    ],
)
def test_what_is_in_no_table_is_unknown(resources: dict[str, Any]) -> None:
    known = {"gcp_machine_type": "e2-standard-2", "gcp_region": "us-central1"} if resources else {}
    assert hourly_price({**known, **resources}, price_tables()) == UNKNOWN


def test_gpus_that_are_attached_have_a_price_of_their_own() -> None:
    table = {
        "date": "2030-01-01",
        "source": "here",
        "machines": {"n1": {"mars1": {"core": [1, None], "gigabyte": [0, 0]}}},
        "gpus": {"nvidia-tesla-t4": {"mars1 mars2": [10, None]}},
    }
    resources = {"gcp_machine_type": "n1-standard-4", "gcp_region": "mars1", "gcp_gpu": "nvidia-tesla-t4:2"}
    assert hourly_price(resources, merged([table])) == Price(24.0, "2030-01-01", "here")
    assert hourly_price({**resources, "gcp_provisioning": "SPOT"}, merged([table])) == UNKNOWN


def test_every_price_has_a_day_and_a_source_and_no_spot_price_is_above_that_on_demand() -> None:
    tables = price_tables()
    parts = [pair for row in tables.machines.values() for pair in row.values()]
    pairs = [*parts, *tables.gpus.values(), *tables.tpus.values()]
    assert len(pairs) > 60
    for on_demand, spot in pairs:
        for price in (on_demand, spot):
            assert price == UNKNOWN or (price.dollars or 0) > 0
            assert price == UNKNOWN or (price.date.startswith("2026-") and price.source)
        if on_demand.dollars is not None and spot.dollars is not None:
            assert spot.dollars < on_demand.dollars
    assert {series for series, _ in tables.machines} >= set(SERIES)


@pytest.mark.parametrize(
    "text", ["tables:", "[", "tables: [{date: 2026-01-01}]", "tables: [{date: d, source: s, tpus: {v4: {r: [1]}}}]"]
)
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "machine_prices.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=f"{path} has no prices that can be read"):
        read_tables(path)


def test_no_tables_have_no_prices() -> None:
    assert merged([]) == PriceTables()
