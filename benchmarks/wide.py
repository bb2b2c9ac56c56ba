"""Full layers, whose versions written out would double at every level, are cheap; a deep chain works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.dag import Workspace, chain, layers
from benchmarks.measure import fresh
from benchmarks.table import Row

_ROUNDS = 5


def wide(folder: Path, shrink: int) -> Iterator[Row]:
    names = Workspace(folder / "names", layers(6, 12, same_config=True)).folder
    configs = Workspace(folder / "configs", layers(6, 12, same_config=False)).folder
    samples = [(fresh("plan", names)["plan"], fresh("plan", configs)["plan"]) for _ in range(_ROUNDS)]
    names_seconds, configs_seconds = map(min, zip(*samples, strict=True))
    yield Row("wide", "6 full layers of 12, names differ: plan", names_seconds, "s CPU", 0.3)
    yield Row("wide", "6 full layers of 12, names differ: peak memory", fresh("memory", names)["peak"], "MB", 100)
    # Here each version has to be hashed from its first byte: Marin's identity allows no less.
    yield Row("wide", "6 full layers of 12, configs differ: plan", configs_seconds, "s CPU")
    yield Row("wide", "6 full layers of 12, configs differ: peak memory", fresh("memory", configs)["peak"], "MB")

    size = 5_000 // shrink
    deep = fresh("plan", Workspace(folder / "chain", chain(size)).folder)
    yield Row("wide", f"chain of {size:,} steps, planned and frozen", deep["plan"] + deep["freeze"], "s CPU")
