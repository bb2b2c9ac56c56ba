"""Cluster files: found by name, checked, and read again when they change."""

import os
import sys
from pathlib import Path

import pytest

from marin_rules.errors import SettingsError
from marin_rules.project import project_folder
from marin_rules.settings.data_buckets import current_cluster, read_cluster


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`config/clusters` of a working directory of its own."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "config" / "clusters"
    folder.mkdir(parents=True)
    return folder


def test_no_variable_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARIN_CLUSTER", raising=False)
    assert current_cluster() is None
    monkeypatch.setenv("MARIN_CLUSTER", "")
    assert current_cluster() is None


def test_marins_own_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_CLUSTER", "marin")
    cluster = current_cluster()
    assert cluster is not None
    assert cluster.region_buckets == {
        "europe-west4": "marin-eu-west4",
        "us-central1": "marin-us-central1",
        "us-central2": "marin-us-central2",
        "us-east1": "marin-us-east1",
        "us-east5": "marin-us-east5",
        "us-west4": "marin-us-west4",
    }
    assert cluster.bucket_url("EUROPE-WEST4") == "gs://marin-eu-west4"
    assert cluster.bucket_url("asia-east1") is None
    assert cluster.location_of("marin-eu-west4") == "europe-west4"
    assert cluster.location_of("other") is None
    assert cluster.temporary_path == "tmp/ttl={days}d"
    assert cluster.temporary_days == (1, 2, 3, 4, 5, 6, 7, 14, 30)
    assert cluster.root is None


def test_the_working_directory_comes_first(folder: Path) -> None:
    (folder / "marin.yaml").write_text("data: {root: gs://mine}")
    assert read_cluster("marin").root == "gs://mine"


def test_a_changed_file_is_read_again(folder: Path) -> None:
    (folder / "c.yaml").write_text("data: {root: gs://one}")
    assert read_cluster("c").root == "gs://one"
    (folder / "c.yaml").write_text("data: {root: gs://another}")
    assert read_cluster("c").root == "gs://another"


def test_a_bucket_for_several_regions_covers_all_of_them(folder: Path) -> None:
    (folder / "c.yaml").write_text("data: {region_buckets: {us-east1: b, us-west1: b}}")
    assert read_cluster("c").location_of("b") == "us-east1+us-west1"


@pytest.mark.parametrize(
    "text",
    ["", "data:", "slurm: {partition: x}", "data: {temp: , region_buckets: }", "data: {scheme: }", "worker_pool: [1]"],
)
def test_every_key_is_optional_and_other_blocks_are_ignored(folder: Path, text: str) -> None:
    (folder / "c.yaml").write_text(text)
    cluster = read_cluster("c")
    assert (cluster.region_buckets, cluster.scheme, cluster.root) == ({}, "gs", None)


@pytest.mark.parametrize("name", ["nope", "../clusters/marin", "a/b"])
def test_an_unknown_name_lists_those_there_are(folder: Path, name: str) -> None:
    (folder / "mine.yaml").write_text("data: {}")
    with pytest.raises(SettingsError) as refused:
        read_cluster(name)
    assert name in str(refused.value)
    assert "marin, mine" in str(refused.value)
    assert str(folder) in str(refused.value)
    assert str(project_folder()) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "where", "advice"),
    [
        ("data: {region_bucket: {}}", "'region_bucket'", "Did you mean 'region_buckets'"),
        ("data: {temp: {ttl: [1]}}", "data.temp has an unknown key 'ttl'", "ttl_days"),
        ("data: [1]", "data is [1]", "mapping"),
        ("- 1", "mapping", "data:"),
        ("data: {region_buckets: [a]}", "data.region_buckets", "mapping"),
        ("data: {region_buckets: {us-east1: 3}}", "data.region_buckets.us-east1 is 3", "string"),
        ("data: {region_buckets: {us-east1: 'gs://b/'}}", "data.region_buckets.us-east1", "alone: b"),
        ("data: {region_buckets: {3: b}}", "data.region_buckets", "string"),
        ("data: {scheme: gcs}", "data.scheme is 'gcs'", "gs, s3"),
        ("data: {root: 'gs://b/'}", "data.root", "'gs://b'"),
        ("data: {root: 5}", "data.root is 5", "string"),
        ("data: {temp: {path: tmp}}", "data.temp.path is 'tmp'", "{days}"),
        ("data: {temp: {path: 'tmp/{day}'}}", "data.temp.path", "{days}"),
        ("data: {temp: {path: '/tmp/{days}'}}", "data.temp.path", "below the bucket"),
        ("data: {temp: {ttl_days: 7}}", "data.temp.ttl_days is 7", "[1, 7, 30]"),
        ("data: {temp: {ttl_days: [1, 0]}}", "data.temp.ttl_days", "[1, 7, 30]"),
        ("data: {temp: {ttl_days: [true]}}", "data.temp.ttl_days", "[1, 7, 30]"),
        ("data: {region_buckets: {us-east1: }}", "data.region_buckets.us-east1", "string"),
        ("data: {temp: {on: 1}}", "data.temp has the key True", "in quotes"),
        ("data: {", "not YAML", ""),
        # The whole file is checked, whichever block is asked for; what is almost one of ours is a slip.
        ("slurm: {partitoin: cpu}", "slurm has an unknown key 'partitoin'", "'partition'"),
        ("jobs: {shared: perhaps}", "jobs.shared is 'perhaps'", "true if nodes see"),
        ("jobs: {variables: ['A=1']}", "jobs.variables[0] is 'A=1'", "without its value"),
        ("slrum: {partition: cpu}", "unknown block 'slrum'", "Did you mean 'slurm'?"),
    ],
)
def test_a_wrong_file_is_refused_by_name_and_key(folder: Path, text: str, where: str, advice: str) -> None:
    (folder / "c.yaml").write_text(text)
    with pytest.raises(SettingsError) as refused:
        read_cluster("c")
    assert str(folder / "c.yaml") in str(refused.value)
    assert where in str(refused.value)
    assert advice in str(refused.value)


def test_the_file_is_parsed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "c.yaml").write_text("data: {root: gs://b}")
    first = read_cluster("c")
    os.utime(folder / "c.yaml", ns=(1, (folder / "c.yaml").stat().st_mtime_ns))
    assert read_cluster("c") is first


def test_a_step_without_jsonschema_reads_what_its_driver_has_checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment of a step has only what the worker needs."""
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    (folder / "c.yaml").write_text("data: {root: gs://b, temp: , region_buckets: {US-East1: b}}")
    cluster = read_cluster("c")
    assert (cluster.root, cluster.region_buckets) == ("gs://b", {"us-east1": "b"})
