"""Ten times the data takes little more memory: of each stage the largest process, with ten times as many shards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import ROOT
from benchmarks.measure import run
from benchmarks.table import Row

_SCRIPT = ROOT / "benchmarks" / "workflows" / "data_memory.py"
_SHARDS = 4
_MOST_GROWTH = 1.5

_STAGES = (
    *("extract", "identify_language", "fingerprint", "find_duplicates", "mark_duplicates", "decontaminate"),
    *("consolidate", "scatter", "gather", "count"),
)
_HOLDS_ALL = "find_duplicates"
"""It compares all documents, and holds something of each: how much is reported."""


def data_memory(folder: Path, shrink: int) -> Iterator[Row]:
    documents = 20_000 // shrink
    memory = {scale: _peaks(folder / str(scale), documents * scale, _SHARDS * scale) for scale in (1, 10)}
    for stage in _STAGES:
        growth = memory[10][stage] / memory[1][stage]
        scales = f"{documents * 10:,} documents / of {documents:,}"
        yield Row("data_memory", f"{stage}: memory of {scales}", growth, "x", _MOST_GROWTH)
        yield Row("data_memory", f"{stage}: {documents * 10:,} documents", memory[10][stage], "MB")
    more = (memory[10][_HOLDS_ALL] - memory[1][_HOLDS_ALL]) * 1e6 / (documents * 9)
    yield Row("data_memory", f"{_HOLDS_ALL}: of each document", more, "bytes")


def _peaks(folder: Path, documents: int, shards: int) -> dict[str, float]:
    folder.mkdir()
    command = [sys.executable, str(_SCRIPT)]
    run([*command, "make", str(documents), str(shards)], folder)
    return {stage: run([*command, stage, str(documents), str(shards)], folder).memory for stage in _STAGES}
