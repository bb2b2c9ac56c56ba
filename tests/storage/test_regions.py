"""Where buckets are, asked from a loopback emulator of Google Cloud Storage through the real gcsfs."""

import asyncio
from pathlib import Path

import pytest

from marin_rules.storage import metadata, regions
from marin_rules.storage.regions import here, location_in, region_of
from support.emulators.gcs.emulator import GcsEmulator
from support.emulators.metadata_server import MetadataServer


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "_locations", {})
    monkeypatch.setattr(metadata, "_zones", {})
    monkeypatch.setattr(metadata, "_PRODUCT_NAME", str(tmp_path / "absent"))
    for name in ("MARIN_PREFIX", "MARIN_CLUSTER", "GCE_METADATA_HOST"):
        monkeypatch.delenv(name, raising=False)


def lookups(gcs: GcsEmulator) -> int:
    return len(gcs.calls())


def test_a_bucket_is_asked_once(gcs_here: GcsEmulator) -> None:
    gcs_here.create_bucket("far", "EUROPE-WEST4")
    assert region_of("gs://far/x/y") == "europe-west4"
    assert region_of("gs://far/z") == "europe-west4"
    assert region_of("gcs://far") == "europe-west4"
    assert lookups(gcs_here) == 1


def test_multi_regions(gcs_here: GcsEmulator) -> None:
    gcs_here.create_bucket("wide", "US")
    assert region_of("gs://wide/x") == "us"


@pytest.mark.parametrize("forbidden", ["/b/far$", "/storageLayout$"])
def test_the_right_to_see_the_bucket_or_to_list_it_is_enough(gcs_here: GcsEmulator, forbidden: str) -> None:
    gcs_here.create_bucket("far", "EUROPE-WEST4")
    gcs_here.inject(403, path=forbidden)
    assert region_of("gs://far/x") == "europe-west4"


def test_a_bucket_that_does_not_say_is_none_and_not_asked_again(gcs_here: GcsEmulator) -> None:
    assert region_of("gs://absent/x") is None
    asked = lookups(gcs_here)
    assert asked > 0
    assert region_of("gs://absent/y") is None
    assert lookups(gcs_here) == asked


@pytest.mark.parametrize("path", ["/data/x", "s3://b/x", "mirror://x", "mirror://gs://far/x"])
def test_other_paths_have_no_region_and_ask_nobody(gcs_here: GcsEmulator, path: str) -> None:
    assert region_of(path) is None
    assert lookups(gcs_here) == 0


def test_the_map_of_the_cluster_comes_first(gcs_here: GcsEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_CLUSTER", "marin")
    assert region_of("gs://marin-eu-west4/x") == "europe-west4"
    assert lookups(gcs_here) == 0


def test_it_can_be_asked_from_a_running_loop(gcs_here: GcsEmulator) -> None:
    gcs_here.create_bucket("far", "EUROPE-WEST4")

    async def ask() -> str | None:
        return region_of("gs://far/x")

    assert asyncio.run(ask()) == "europe-west4"


def test_a_dual_region_that_somebody_put_together() -> None:
    placement = {"dataLocations": ["US-EAST1", "US-WEST1"]}
    assert location_in({"location": "US", "customPlacementConfig": placement}) == "us-east1+us-west1"
    assert location_in({"location": "NAM4"}) == "nam4"
    assert location_in({}) is None


def test_here_is_where_the_prefix_is(gcs_here: GcsEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_PREFIX", "gs://bucket/x")
    assert here() == "us-central1"


def test_here_is_where_the_machine_is(
    gcs_here: GcsEmulator, metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata_server.zone = "us-east5-b"
    monkeypatch.setenv("GCE_METADATA_HOST", metadata_server.host)
    monkeypatch.setenv("MARIN_PREFIX", "/data")
    assert here() == "us-east5"
    gcs_here.create_bucket("wide", "US")
    monkeypatch.setenv("MARIN_PREFIX", "gs://wide/x")
    assert here() == "us-east5"


def test_here_may_be_a_multi_region_or_unknown(gcs_here: GcsEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
    gcs_here.create_bucket("wide", "US")
    monkeypatch.setenv("MARIN_PREFIX", "gs://wide/x")
    assert here() == "us"
    monkeypatch.setenv("MARIN_PREFIX", "/data")
    assert here() is None
