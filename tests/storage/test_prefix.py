"""Which prefix counts, and when the metadata server is asked."""

from pathlib import Path

import pytest

from marin_rules.storage import metadata
from marin_rules.storage.prefix import marin_prefix, marin_region
from support.emulators.metadata_server import MetadataServer


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without settings, on a machine that is not Google's."""
    monkeypatch.setattr(metadata, "_zones", {})
    monkeypatch.setattr(metadata, "_PRODUCT_NAME", str(tmp_path / "absent"))
    for name in ("MARIN_PREFIX", "MARIN_CLUSTER", "GCE_METADATA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config" / "clusters").mkdir(parents=True)
    return tmp_path / "config" / "clusters"


@pytest.fixture
def nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(host: str) -> None:
        raise AssertionError(f"the metadata server {host} was asked")

    monkeypatch.setattr(metadata, "_ask", asked)


@pytest.mark.usefixtures("nobody_is_asked")
def test_a_laptop_without_settings_asks_nobody() -> None:
    assert marin_prefix() == "/tmp/marin"
    assert marin_region() is None


@pytest.mark.usefixtures("nobody_is_asked")
def test_the_given_prefix_wins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "c.yaml").write_text("data: {root: gs://root, region_buckets: {us-east1: mine}}")
    monkeypatch.setenv("MARIN_CLUSTER", "c")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    monkeypatch.setenv("MARIN_PREFIX", "gs://mine/x")
    assert marin_prefix() == "gs://mine/x"
    assert marin_region() == "us-east1"


@pytest.mark.usefixtures("nobody_is_asked")
def test_then_the_root_of_the_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "c.yaml").write_text("data: {root: gs://mine/y, region_buckets: {us-east1: mine}}")
    monkeypatch.setenv("MARIN_CLUSTER", "c")
    assert marin_prefix() == "gs://mine/y"
    assert marin_region() == "us-east1"


def test_then_the_bucket_of_the_region(
    folder: Path, metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata_server.zone = "europe-west4-a"
    monkeypatch.setenv("GCE_METADATA_HOST", metadata_server.host)
    monkeypatch.setenv("MARIN_CLUSTER", "marin")
    assert marin_prefix() == "gs://marin-eu-west4"
    assert marin_region() == "europe-west4"
    assert metadata_server.calls == 1


def test_then_a_bucket_named_after_the_region(
    folder: Path, metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata_server.zone = "asia-east1-a"
    monkeypatch.setenv("GCE_METADATA_HOST", metadata_server.host)
    assert marin_prefix() == "gs://marin-asia-east1"
    (folder / "c.yaml").write_text("data: {scheme: s3, region_buckets: {us-east1: mine}}")
    monkeypatch.setenv("MARIN_CLUSTER", "c")
    assert marin_prefix() == "s3://marin-asia-east1"
    assert marin_region() == "asia-east1"


def test_a_cluster_on_a_machine_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(metadata, "_ask", lambda host, what: asked.append((host, what)))
    monkeypatch.setenv("MARIN_CLUSTER", "marin")
    assert marin_prefix() == "/tmp/marin"
    assert marin_region() is None
    assert asked == [("169.254.169.254", "zone")]


@pytest.mark.usefixtures("nobody_is_asked")
@pytest.mark.parametrize(
    ("prefix", "region"),
    [
        ("gs://marin-us-central2", "us-central2"),
        ("gs://marin-eu-west4/scratch", "europe-west4"),
        ("gs://mine", None),
        ("s3://marin-na", None),
        ("/marin-us-central2", None),
    ],
)
def test_the_names_of_marins_buckets_tell_their_regions(
    prefix: str, region: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARIN_PREFIX", prefix)
    assert marin_region() == region


def test_a_prefix_in_no_known_bucket_has_the_region_of_the_machine(
    metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", metadata_server.host)
    monkeypatch.setenv("MARIN_CLUSTER", "marin")
    monkeypatch.setenv("MARIN_PREFIX", "gs://elsewhere")
    assert marin_region() == "us-central1"
