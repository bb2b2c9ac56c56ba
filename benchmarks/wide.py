"""Full layers, whose versions written out would double at every level, are cheap; a deep chain works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.dag import Workspace, chain, layers
from benchmarks.measure import fresh
from benchmarks.table import Row

_ROUNDS = 5


def wide(folder: Path, shrink: int) -> Iterator[Row]:
    full = Workspace(folder / "layers", layers(count=6, width=12)).folder
    seconds = min(fresh("plan", full)["plan"] for _ in range(_ROUNDS))
    yield Row("wide", "plan of 6 full layers of 12 steps", seconds, "s CPU", 0.3)
    yield Row("wide", "their peak memory (tracemalloc)", fresh("memory", full)["peak"], "MB", 100)

    size = 5_000 // shrink
    deep = fresh("plan", Workspace(folder / "chain", chain(size)).folder)
    yield Row("wide", f"chain of {size:,} steps, planned and frozen", deep["plan"] + deep["freeze"], "s CPU")
