"""Lines about shards while they are worked on."""

from __future__ import annotations

import itertools
import time

import pytest

from marin_rules.pipeline.core.progress import Progress


def test_no_line_is_printed_twice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Not the last one either, after a shard that took longer than the time between two lines."""
    clock = itertools.count(step=20)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    progress = Progress(2, 0)
    for _ in range(2):
        progress.add({"read": 1000, "bytes_read": 10})
    progress.tell()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["1 of 2 shards", "2 of 2 shards"]


@pytest.mark.parametrize(("read", "speed"), [(500, "0.1 kB/s"), (40_000, "8.0 kB/s"), (60_000_000, "12.0 MB/s")])
def test_little_is_not_nothing(
    read: int, speed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = itertools.count(step=5)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    progress = Progress(1, 0)
    progress.add({"read": 10, "bytes_read": read})
    progress.tell()
    assert capsys.readouterr().out == f"1 of 1 shards, 10 records, 2 records/s, {speed}\n"
