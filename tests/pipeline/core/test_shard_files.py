"""Shards in all formats, there and back; and everything that can be wrong with one."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DamagedShard, DataError
from marin_rules.pipeline.core.shard_files import FORMATS, ShardWriter, format_of, read_rows

RECORDS = [
    {"id": "a", "text": "one\ntwo", "source": "books", "metadata": {"year": 1851, "tags": ["sea"]}},
    {"id": "b", "text": "", "added": "2026-11-18", "score": 0.5},
    {"id": "ü", "text": "\u2028 \x00 🐋"},
]


def write(path: Path, records: list[Any]) -> None:
    with path.open("wb") as file:
        writer = ShardWriter(file, format_of(path.name) or "")
        for record in records:
            writer.write(record)
        writer.close()


def read(path: Path, **options: Any) -> tuple[list[Any], list[Any]]:
    """The good records of a shard, and its rejects."""
    rejects: list[Any] = []
    account = Account(path.name, rejects.append)
    good = [row.record for row in read_rows(str(path), path.name, account, **options)]
    assert account.read == len(good) + len(rejects)
    return good, rejects


@pytest.mark.parametrize("format", FORMATS)
def test_there_and_back(format: str, tmp_path: Path) -> None:
    path, again = tmp_path / f"shard{format}", tmp_path / f"again{format}"
    write(path, RECORDS)
    assert read(path) == (RECORDS, [])
    write(again, RECORDS)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("format", FORMATS)
def test_a_shard_without_records(format: str, tmp_path: Path) -> None:
    path = tmp_path / f"shard{format}"
    write(path, [])
    assert read(path) == ([], [])


@given(st.lists(st.tuples(st.text(), st.dictionaries(st.text(), st.integers(-(2**53), 2**53))), max_size=5))
@settings(max_examples=25, deadline=None)
def test_whatever_the_text(
    tmp_path_factory: pytest.TempPathFactory, contents: list[tuple[str, dict[str, int]]]
) -> None:
    path = tmp_path_factory.mktemp("shard") / "shard.jsonl.zst"
    records = [{"id": str(i), "text": text, "metadata": more} for i, (text, more) in enumerate(contents)]
    write(path, records)
    assert read(path) == (records, [])


def test_others_can_read_our_files(tmp_path: Path) -> None:
    for format in FORMATS:
        write(tmp_path / f"shard{format}", RECORDS)
    line = [json.loads(line) for line in (tmp_path / "shard.jsonl").read_text().split("\n") if line]
    zipped = gzip.decompress((tmp_path / "shard.jsonl.gz").read_bytes())
    assert line == RECORDS
    assert zipped == (tmp_path / "shard.jsonl").read_bytes()
    table = pyarrow.parquet.read_table(tmp_path / "shard.parquet")
    assert table["text"].to_pylist() == [record["text"] for record in RECORDS]


def test_we_can_read_the_files_of_others(tmp_path: Path) -> None:
    """Several members or frames in one file, no end of line at its end, a byte order mark, a last block that is filled
    up with zeros; nested and missing columns of Parquet, and numbers that are none."""
    lines = [json.dumps(record).encode() for record in RECORDS]
    (tmp_path / "shard.jsonl.gz").write_bytes(b"".join(gzip.compress(line + b"\n") for line in lines))
    (tmp_path / "shard.jsonl.zst").write_bytes(b"".join(zstandard.compress(line + b"\n") for line in lines))
    (tmp_path / "shard.jsonl").write_bytes(b"\r\n".join(lines))
    (tmp_path / "mark.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines))
    (tmp_path / "filled.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines)) + bytes(40_000))
    for name in ("shard.jsonl.gz", "shard.jsonl.zst", "shard.jsonl", "mark.jsonl", "filled.jsonl.gz"):
        assert read(tmp_path / name) == (RECORDS, []), name
    records = [RECORDS[0], {"id": "b", "text": "x"}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "p.parquet")
    assert read(tmp_path / "p.parquet") == (records, [])
    table = {"id": ["a", "b"], "text": ["c", "d"], "score": [0.5, float("nan")]}
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "nan.parquet")
    assert read(tmp_path / "nan.parquet") == ([{"id": "a", "text": "c", "score": 0.5}, {"id": "b", "text": "d"}], [])
    (tmp_path / "null.jsonl").write_text('{"id": "a", "text": "c", "source": null, "metadata": null, "score": null}')
    assert read(tmp_path / "null.jsonl") == ([{"id": "a", "text": "c", "score": None}], [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id": "x", "text": "cut', "not JSON"),
        (b'{"id": "x", "text": NaN}', "not JSON"),
        (b'{"id": "x", "text": "\\ud800"}', "not JSON"),
        ('{"id": "x", "text": "ä"}'.encode("latin-1"), "not UTF-8"),
        ('{"id": "x", "text": "ä"}'.encode("utf-16"), "not UTF-8"),
        (b'["x", "text"]', "not an object"),
        (b'{"id": "x", "text": "y", "more": ' + b"[" * 220 + b"]" * 220 + b"}", "nested too deeply"),
        (b'{"id": "x"}', "no text"),
        (b'{"id": "a", "text": "other"}', "the id was there before"),
        (b'{"id": "x", "text": "' + b"y" * 2000 + b'"}', "too large"),
    ],
)
def test_bad_lines_are_rejected_and_the_others_read(line: bytes, reason: str, tmp_path: Path) -> None:
    first, last = (json.dumps(record).encode() for record in RECORDS[:2])
    path = tmp_path / "shard.jsonl"
    path.write_bytes(b"\n".join([first, line.replace(b"\n", b" "), b"  ", last]))
    good, rejects = read(path, largest=1000)
    assert good == RECORDS[:2]
    assert [(reject["shard"], reject["number"], reject["reason"]) for reject in rejects] == [("shard.jsonl", 2, reason)]


@pytest.mark.parametrize("format", [".jsonl.gz", ".jsonl.zst", ".parquet"])
@pytest.mark.parametrize("damage", ["empty", "cut", "not compressed", "zeros"])
def test_damaged_files_are_named(format: str, damage: str, tmp_path: Path) -> None:
    path = tmp_path / f"shard{format}"
    write(path, [{"id": str(number), "text": f"{number:0100}"} for number in range(100)])
    whole = path.read_bytes()
    damaged = {"empty": b"", "cut": whole[:-20], "not compressed": b'{"id": "a", "text": "b"}\n', "zeros": bytes(4096)}
    path.write_bytes(damaged[damage])
    with pytest.raises(DamagedShard, match=rf"shard\{format} is "):
        read(path)


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (b"\xff", "binary"),
        ([{"page": b"\xff"}], "list<.*binary"),
        (Decimal("1.5"), "decimal128"),
        (timedelta(days=1), "duration"),
    ],
)
def test_columns_that_json_cannot_hold_are_refused_by_name(value: Any, type: str, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"id": ["a"], "text": ["b"], "raw": [value]}), tmp_path / "p.parquet")
    with pytest.raises(DataError, match=f"'raw' of type {type}"):
        read(tmp_path / "p.parquet")


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    columns = [pyarrow.array([value]) for value in ("a", "b", "c")]
    table = pyarrow.Table.from_arrays(columns, names=["id", "text", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(DataError, match=r"p\.parquet has several columns named 'text'"):
        read(tmp_path / "p.parquet")


def test_points_in_time_can_be_written_again(tmp_path: Path) -> None:
    """Also those that pandas writes, which counts nanoseconds in any case; real ones are refused by name."""
    moment = datetime(2026, 11, 18, 12, 30, 0, 250_000)
    kinds: dict[str, Any] = {
        "pandas": pyarrow.array([moment], pyarrow.timestamp("ns")),
        "zone": pyarrow.array([moment], pyarrow.timestamp("ns", "UTC")),
        "time": pyarrow.array([moment.time()], pyarrow.time64("ns")),
        "inner": pyarrow.array([[{"at": moment}]], pyarrow.list_(pyarrow.struct([("at", pyarrow.timestamp("ns"))]))),
        "day": pyarrow.array([moment.date()]),
    }
    pyarrow.parquet.write_table(pyarrow.table({"id": ["a"], "text": ["b"], **kinds}), tmp_path / "p.parquet")
    good, rejects = read(tmp_path / "p.parquet")
    write(tmp_path / "again.jsonl", good)
    (again,), _ = read(tmp_path / "again.jsonl")
    said = "2026-11-18T12:30:00.250000"
    times = {"pandas": said, "zone": f"{said}+00:00", "time": "12:30:00.250000", "day": "2026-11-18"}
    assert (again, rejects) == ({"id": "a", "text": "b", **times, "inner": [{"at": said}]}, [])
    finer = pyarrow.array([1], pyarrow.timestamp("ns"))
    pyarrow.parquet.write_table(pyarrow.table({"id": ["a"], "text": ["b"], "at": finer}), tmp_path / "n.parquet")
    with pytest.raises(DataError, match=r"n\.parquet has nanoseconds in the column 'at'"):
        read(tmp_path / "n.parquet")


def test_columns_that_only_look_like_ours(tmp_path: Path) -> None:
    def table(rest: list[Any]) -> None:
        ids = [str(number) for number in range(len(rest))]
        columns = {"id": ids, "text": ids, "source": ids, "rest": rest}
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "p.parquet")

    table(["no JSON", "[1]", '{"id": "other"}', '{"score": 1}', None])
    good, rejects = read(tmp_path / "p.parquet")
    assert [(record["id"], record.get("score")) for record in good] == [("3", 1), ("4", None)]
    reasons = ["rest is not JSON", *["rest is not an object of other fields"] * 2]
    assert [reject["reason"] for reject in rejects] == reasons
    table([5])
    assert [record["rest"] for record in read(tmp_path / "p.parquet")[0]] == [5]


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip"])
def test_garbled_pages_are_damage(compression: str, tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    table = pyarrow.table({"id": [str(number) for number in range(3000)], "text": ["some words"] * 3000})
    pyarrow.parquet.write_table(table, path, compression=compression)
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes(1000) + whole[1100:])
    with pytest.raises(DamagedShard, match=r"p\.parquet is damaged: "):
        read(path)


def test_a_text_that_is_not_utf8_is_damage(tmp_path: Path) -> None:
    text = pyarrow.array([b"\xff", b"ok"], pyarrow.binary()).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"id": ["a", "b"], "text": text}), tmp_path / "p.parquet")
    with pytest.raises(DamagedShard, match=r"p\.parquet is damaged: a text in it is not UTF-8"):
        read(tmp_path / "p.parquet")


def test_a_window_that_is_too_large_is_no_damage(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=30)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = compressor.compress(b'{"id": "a", "text": "b"}\n') + compressor.flush()
    (tmp_path / "a.jsonl.zst").write_bytes(data)
    with pytest.raises(DataError, match="zstd -dc --long=31") as raised:
        read(tmp_path / "a.jsonl.zst")
    assert not isinstance(raised.value, DamagedShard)


def test_a_document_of_100_megabytes_passes_and_a_larger_one_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "shard.jsonl.zst"
    path.write_bytes(
        zstandard.compress(b'{"id": "large", "text": "' + b"x" * 100_000_000 + b'"}\n{"id": "b", "text": "c"}\n')
    )
    good, _ = read(path)
    assert [len(record["text"]) for record in good] == [100_000_000, 1]
    del good
    tracemalloc.start()
    good, rejects = read(path, largest=1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ([record["id"] for record in good], [reject["reason"] for reject in rejects]) == (["b"], ["too large"])
    assert peak < 50_000_000
