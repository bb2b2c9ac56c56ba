"""Direct reads of other regions' data are charged: the real gcsfs, on a loopback emulator of Google Cloud Storage."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.registry import _registry, known_implementations

from marin_rules.storage import budget, metadata, regions
from marin_rules.storage.budget import BudgetError, Ledger, mirror_budget, remaining, step_ledger
from marin_rules.storage.guard import already_charged, install_guard
from support.emulators.gcs.emulator import GcsEmulator

GB = 2**30
SIZE = 1000
DATA = bytes(range(250)) * 4


@pytest.fixture
def guarded(gcs_here: GcsEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsEmulator]:
    """Steps live in us-central1. `near` is there, `wide` is in all of the US, `far` in Europe."""
    from marin_rules.storage import guarded_gcs

    for bucket, location in (("near", "us-central1"), ("wide", "US"), ("far", "europe-west4")):
        gcs_here.create_bucket(bucket, location)
        gcs_here.put(bucket, "data", DATA)
    for name in ("MARIN_CLUSTER", "MARIN_MIRROR_BUDGET_GB", "MARIN_BUDGET_LEDGER", "GCE_METADATA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MARIN_PREFIX", "gs://bucket/steps")
    monkeypatch.setattr(budget, "_of_this_process", Ledger())
    monkeypatch.setattr(metadata, "_PRODUCT_NAME", str(tmp_path / "absent"))
    monkeypatch.setattr(regions, "_locations", {})
    monkeypatch.setattr(guarded_gcs, "_warned", set())
    # The registry is the process's: other tests must find it as it was.
    before = [(registry, dict(registry)) for registry in (_registry, known_implementations)]
    for protocol in ("gs", "gcs"):
        _registry.pop(protocol, None)
    install_guard()
    guarded_gcs.GuardedGCSFileSystem.clear_instance_cache()
    yield gcs_here
    guarded_gcs.GuardedGCSFileSystem.clear_instance_cache()
    for registry, content in before:
        registry.clear()
        registry.update(content)


def spent() -> int:
    return 10 * GB - remaining()


def gs() -> fsspec.AbstractFileSystem:
    return fsspec.filesystem("gs")


def calls_of(gcs: GcsEmulator, bucket: str) -> list[str]:
    return [call.path for call in gcs.calls() if call.bucket == bucket]


def read_by_opening(path: str) -> bytes:
    with fsspec.open(path) as file:
        return file.read()


READERS: dict[str, Callable[[str], bytes]] = {
    "cat_file": lambda path: gs().cat_file(path),
    "cat": lambda path: gs().cat(path),
    "open": read_by_opening,
    "gcs://": lambda path: read_by_opening(path.replace("gs://", "gcs://")),
    "read_block": lambda path: gs().read_block(path, 0, SIZE),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_whole_file_is_charged_once(guarded: GcsEmulator, reader: str) -> None:
    assert READERS[reader]("gs://far/data") == DATA
    assert spent() == SIZE


@pytest.mark.parametrize("bucket", ["near", "wide", "bucket"])
@pytest.mark.parametrize("reader", READERS)
def test_near_data_cost_nothing(guarded: GcsEmulator, reader: str, bucket: str) -> None:
    guarded.put("bucket", "data", DATA)
    assert READERS[reader](f"gs://{bucket}/data") == DATA
    assert spent() == 0


def test_downloads_are_charged(guarded: GcsEmulator, tmp_path: Path) -> None:
    gs().get_file("far/data", str(tmp_path / "one"))
    assert (tmp_path / "one").read_bytes() == DATA
    assert spent() == SIZE
    guarded.put("far", "folder/a", DATA)
    guarded.put("far", "folder/b", DATA)
    gs().get("far/folder", str(tmp_path / "all"), recursive=True)
    assert spent() == 3 * SIZE


def test_a_download_in_parts_is_charged_once(
    guarded: GcsEmulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def threshold(filesystem: object, bucket: str) -> int:
        return 100  # 100 MB otherwise

    monkeypatch.setattr(type(gs()), "_get_threshold_for_disk_reads", threshold)
    monkeypatch.setattr(type(gs()), "MIN_CHUNK_SIZE_FOR_CONCURRENCY", 100)
    gs().get_file("far/data", str(tmp_path / "x"), concurrency=4, chunk_size=100)
    assert (tmp_path / "x").read_bytes() == DATA
    assert len([call for call in guarded.calls() if call.download]) > 1
    assert spent() == SIZE


def test_ranges_are_charged_by_their_length(guarded: GcsEmulator) -> None:
    assert gs().cat_file("far/data", 10, 30) == DATA[10:30]
    assert spent() == 20
    assert gs().cat_ranges(["far/data", "near/data", "far/data"], [0, 0, 990], [5, 500, 1000]) == [
        DATA[:5],
        DATA[:500],
        DATA[990:],
    ]
    assert spent() == 35


@pytest.mark.parametrize(
    ("start", "end", "length"),
    [(-10, None, 10), (990, None, 10), (None, 7, 7), (990, 5000, 10), (-20, -10, 10), (5, 5, 0), (None, -990, 10)],
)
def test_ranges_from_the_end_and_beyond_it(
    guarded: GcsEmulator, start: int | None, end: int | None, length: int
) -> None:
    assert len(gs().cat_file("far/data", start, end)) == length
    assert spent() == length


def test_a_range_far_beyond_the_end_is_no_reason_to_refuse(guarded: GcsEmulator) -> None:
    with mirror_budget(SIZE / GB):
        assert gs().cat_file("far/data", 0, 50 * GB) == DATA
        assert remaining() == 0


def test_an_open_file_is_charged_for_what_it_fetches(guarded: GcsEmulator) -> None:
    with gs().open("far/data", cache_type="readahead", block_size=100) as file:
        file.read(50)
        first = spent()
        assert 50 <= first <= 150
        file.seek(0)
        file.read(50)
        assert spent() == first
        file.seek(900)
        file.read(10)
        assert first + 10 <= spent() <= first + 100
    with gs().open("far/data", cache_type="none") as file:
        before = spent()
        file.seek(500)
        file.read(20)
        assert spent() == before + 20


def test_reading_ahead_charges_no_more_than_the_file(guarded: GcsEmulator) -> None:
    with gs().open("far/data") as file:
        for _ in range(10):
            file.read(100)
    assert spent() == SIZE


def test_pandas_reads_through_the_guard(guarded: GcsEmulator) -> None:
    import pandas

    text = b"x,y\n" + b"1,2\n" * 1000
    guarded.put("far", "table.csv", text)
    assert len(pandas.read_csv("gs://far/table.csv")) == 1000
    assert spent() == len(text)


@pytest.mark.parametrize("reader", READERS)
def test_too_much_is_refused_before_a_byte_is_read(guarded: GcsEmulator, reader: str) -> None:
    with mirror_budget((SIZE - 1) / GB), pytest.raises(BudgetError) as refused:
        READERS[reader]("gs://far/data")
    for part in ("gs://far/data", "europe-west4", "us-central1", "1000 bytes"):
        assert part in str(refused.value)
    assert not [call for call in guarded.calls() if call.download]


def test_a_refused_download_leaves_no_file(guarded: GcsEmulator, tmp_path: Path) -> None:
    with mirror_budget(0), pytest.raises(BudgetError):
        gs().get_file("far/data", str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


def test_who_pays_is_not_refused(guarded: GcsEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_I_WILL_PAY_FOR_ALL_FEES", "1")
    with mirror_budget(0):
        assert gs().cat_file("far/data") == DATA


def test_a_failed_read_is_refunded(guarded: GcsEmulator) -> None:
    gs().cat_file("near/data")
    guarded.inject(403, path="/o/data", methods=["GET"])
    with pytest.raises(OSError, match="Forbidden"):
        gs().cat_file("far/data", 0, 100)
    assert spent() == 0


def test_an_absent_file_is_absent(guarded: GcsEmulator) -> None:
    for path in ("far/absent", "near/absent"):
        with pytest.raises(FileNotFoundError):
            gs().cat_file(path)
    assert spent() == 0


def test_what_others_charged_is_not_charged_again(guarded: GcsEmulator) -> None:
    with already_charged():
        assert gs().cat_file("far/data") == DATA
    assert spent() == 0
    gs().cat_file("far/data")
    assert spent() == SIZE


def test_near_data_add_one_lookup_for_a_bucket(guarded: GcsEmulator) -> None:
    for index in range(20):
        guarded.put("near", f"many/{index}", DATA)
    assert gs().cat_file("near/data", 0, 10) == DATA[:10]
    gs().cat([f"near/many/{index}" for index in range(20)])
    assert sum("storageLayout" in path for path in calls_of(guarded, "near")) == 1
    assert len(calls_of(guarded, "near")) == 1 + 1 + 20
    assert len(calls_of(guarded, "bucket")) == 1


def test_many_first_reads_at_once_ask_once(guarded: GcsEmulator) -> None:
    for index in range(20):
        guarded.put("far", f"many/{index}", DATA)
    gs().cat([f"far/many/{index}" for index in range(20)])
    assert spent() == 20 * SIZE
    assert sum("storageLayout" in path for path in calls_of(guarded, "far")) == 1


def test_a_bucket_that_does_not_say_warns_once_and_is_free(
    guarded: GcsEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    guarded.create_bucket("secret", "europe-west4")
    guarded.put("secret", "data", DATA)
    guarded.inject(403, path="/b/secret(/storageLayout)?$")
    with caplog.at_level(logging.WARNING, logger="marin_rules"):
        for _ in range(3):
            assert gs().cat_file("secret/data") == DATA
    assert [record.getMessage() for record in caplog.records if "gs://secret" in record.getMessage()] == [
        "the location of gs://secret is not known: reads from it are not charged to the budget. Ask for permission to"
        " list its objects, or add it to the cluster's region_buckets."
    ]
    assert spent() == 0


def test_without_a_place_nothing_is_charged_or_asked(guarded: GcsEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_PREFIX", "/data")
    assert gs().cat_file("far/data") == DATA
    assert spent() == 0
    assert len(calls_of(guarded, "far")) == 1


def test_asynchronous_reads_are_charged(guarded: GcsEmulator) -> None:
    async def read() -> bytes:
        filesystem = fsspec.filesystem("gs", asynchronous=True, skip_instance_cache=True)
        await filesystem._set_session()
        try:
            return await filesystem._cat_file("far/data")
        finally:
            await filesystem._session.close()

    assert asyncio.run(read()) == DATA
    assert spent() == SIZE


def test_writes_and_listings_are_free(guarded: GcsEmulator) -> None:
    gs().pipe_file("far/new", DATA)
    with gs().open("far/newer", "wb") as file:
        file.write(DATA)
    assert sorted(gs().ls("far", detail=False)) == ["far/data", "far/new", "far/newer"]
    assert gs().info("far/new")["size"] == SIZE
    assert spent() == 0


def _read_or_be_refused() -> int:
    try:
        return 0 if gs().cat_file("gs://far/data") == DATA else 1
    except BudgetError:
        return 7


def test_a_forked_process_works_and_shares_the_budget_of_a_step(
    guarded: GcsEmulator, forked: Callable[[Callable[[], int]], int]
) -> None:
    with step_ledger(2.5 * SIZE / GB):
        assert gs().cat_file("far/data") == DATA  # the event loop of fsspec runs from here on
        assert forked(_read_or_be_refused) == 0
        assert forked(_read_or_be_refused) == 7
        with pytest.raises(BudgetError):
            gs().cat_file("far/data")
        assert gs().cat_file("far/data", 0, 10) == DATA[:10]


SPAWNED = """
import sys
import fsspec
from marin_rules.storage.guard import install_guard
install_guard()
assert "gcsfs" not in sys.modules, "gcsfs was imported too early"
from marin_rules.storage.budget import BudgetError
try:
    with fsspec.open("gs://far/data") as file:
        print(len(file.read()))
except BudgetError:
    print("refused")
"""


def test_a_spawned_process_shares_the_budget_of_a_step(guarded: GcsEmulator) -> None:
    def run() -> str:
        return subprocess.run([sys.executable, "-c", SPAWNED], capture_output=True, text=True, check=True).stdout

    with step_ledger(1.5 * SIZE / GB):
        assert run() == f"{SIZE}\n"
        assert remaining() == SIZE // 2
        assert run() == "refused\n"


def test_it_replaces_a_class_that_was_used_before(guarded: GcsEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
    import gcsfs

    for protocol in ("gs", "gcs"):
        monkeypatch.setitem(_registry, protocol, gcsfs.GCSFileSystem)
    install_guard()
    gs().cat_file("far/data")
    fsspec.filesystem("gcs").cat_file("far/data")
    assert spent() == 2 * SIZE
