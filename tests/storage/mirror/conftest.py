"""A cluster of three regions: `near` and `far` are sources, `bucket` is the prefix of whoever wants one in a store.

The buckets are Google's or Amazon's, on loopback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fsspec.registry import _registry, known_implementations

from marin_rules.storage import budget, metadata, regions
from marin_rules.storage.budget import Ledger
from marin_rules.storage.mirror.filesystem import MirrorFileSystem
from marin_rules.storage.mirror.install import install_mirror
from support.emulators.common.emulator import Emulator
from support.mirror_world import World

REGIONS = {
    "gs": {"us-central1": "bucket", "europe-west4": "far", "us-east1": "near"},
    "s3": {"us-east-1": "bucket", "eu-west-1": "far", "us-west-2": "near"},
}


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of the machine's own settings, and a budget and registry of one's own."""
    for name in ("MARIN_MIRROR_BUDGET_GB", "MARIN_BUDGET_LEDGER", "GCE_METADATA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(budget, "_of_this_process", Ledger())
    monkeypatch.setattr(metadata, "_PRODUCT_NAME", str(tmp_path / "absent"))
    monkeypatch.setattr(regions, "_locations", {})
    registries = [(registry, dict(registry)) for registry in (_registry, known_implementations)]
    install_mirror()
    yield
    MirrorFileSystem.clear_instance_cache()
    for registry, before in registries:
        registry.clear()
        registry.update(before)


@pytest.fixture
def make_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[[str, str], World]:
    """`make_world(scheme of the sources, scheme of the prefix or "file")`."""

    def make(scheme: str, prefix_scheme: str) -> World:
        store: Emulator = request.getfixturevalue("gcs_here" if scheme == "gs" else "s3_here")
        clusters = tmp_path / "config" / "clusters"
        clusters.mkdir(parents=True)
        lines = [f"    {region}: {bucket}" for region, bucket in REGIONS[scheme].items()]
        text = "\n".join(["data:", f"  scheme: {scheme}", "  region_buckets:", *lines, ""])
        (clusters / "three.yaml").write_text(text)
        for region, bucket in REGIONS[scheme].items():
            if bucket != "bucket":
                store.create_bucket(bucket, region)
        prefix = str(tmp_path / "prefix") if prefix_scheme == "file" else f"{prefix_scheme}://bucket"
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("MARIN_CLUSTER", "three")
        monkeypatch.setenv("MARIN_PREFIX", prefix)
        return World(scheme, store, prefix, tmp_path)

    return make


@pytest.fixture(params=["gs-file", "gs-gs", "s3-file", "s3-s3"])
def world(request: pytest.FixtureRequest, make_world: Callable[[str, str], World]) -> World:
    """Every kind of source with every kind of prefix that it is used with."""
    return make_world(*request.param.split("-"))


@pytest.fixture(params=["file", "gs"])
def google(request: pytest.FixtureRequest, make_world: Callable[[str, str], World]) -> World:
    """Google's buckets, with the prefix on a disk or in one of them."""
    return make_world("gs", request.param)
