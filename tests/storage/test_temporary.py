"""Places for temporary data."""

import math
from pathlib import Path

import pytest

from marin_rules.storage.temporary import marin_temp_bucket


@pytest.fixture(autouse=True)
def marin_prefix_is_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARIN_CLUSTER", raising=False)
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-central1/users/ann")


@pytest.mark.parametrize(
    ("asked", "given"),
    [(1, 1), (7, 7), (8, 14), (14, 14), (15, 30), (30, 30), (31, 30), (365, 30), (0.5, 1), (2.5, 3)],
)
def test_days_are_rounded_up_and_clamped(asked: float, given: int) -> None:
    assert marin_temp_bucket(asked) == f"gs://marin-us-central1/tmp/ttl={given}d"


@pytest.mark.parametrize("days", [0, -3, math.nan])
def test_no_time_at_all_is_refused(days: float) -> None:
    with pytest.raises(ValueError, match="ttl_days"):
        marin_temp_bucket(days)


@pytest.mark.parametrize(
    ("source", "prefix", "expected"),
    [
        (None, "zephyr/x", "gs://marin-us-central1/tmp/ttl=1d/zephyr/x"),
        (None, "/zephyr/", "gs://marin-us-central1/tmp/ttl=1d/zephyr"),
        ("gs://other/deep/path", "x", "gs://other/tmp/ttl=1d/x"),
        ("s3://other", "", "s3://other/tmp/ttl=1d"),
        ("/data/marin", "x", "/data/marin/tmp/ttl=1d/x"),
        ("out/", "", "out/tmp/ttl=1d"),
    ],
)
def test_places(source: str | None, prefix: str, expected: str) -> None:
    assert marin_temp_bucket(1, prefix, source) == expected


def test_the_cluster_says_where_and_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "config" / "clusters"
    folder.mkdir(parents=True)
    (folder / "c.yaml").write_text("data: {temp: {path: 'scratch/{days}', ttl_days: [20, 10]}}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARIN_CLUSTER", "c")
    assert marin_temp_bucket(3, "x") == "gs://marin-us-central1/scratch/10/x"
    assert marin_temp_bucket(99) == "gs://marin-us-central1/scratch/20"
