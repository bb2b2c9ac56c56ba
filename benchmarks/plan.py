"""Planning costs so little a step, and grows in proportion to the steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.dag import Workspace, random_dag
from benchmarks.measure import fresh
from benchmarks.table import Row

_ROUNDS = 5
_SIZES = (1_000, 10_000, 100_000)


def plan(folder: Path, shrink: int) -> Iterator[Row]:
    _, middle, large = sizes = [size // shrink for size in _SIZES]
    workspaces = {size: Workspace(folder / str(size), random_dag(size)).folder for size in sizes}
    samples = [{size: fresh("plan", workspaces[size]) for size in sizes} for _ in range(_ROUNDS)]
    total = {size: min(sample[size]["plan"] for sample in samples) for size in sizes}
    frozen = {size: min(sample[size]["freeze"] for sample in samples) for size in sizes}

    for size in sizes:
        each, bar = total[size] / size * 1e6, 80 if size == middle else None
        yield Row("plan", f"identity and plan, {size:,} steps", each, "us CPU a step", bar)
    yield Row("plan", f"plan of {large:,} steps / {middle:,} steps", total[large] / total[middle], "x", 11)
    placed = min(sample[middle]["place"] for sample in samples)
    yield Row("plan", f"placement of {middle:,} local steps", placed / middle * 1e6, "us CPU a step")
    for size in sizes:
        yield Row("plan", f"freeze to bytes, {size:,} steps", frozen[size] / size * 1e6, "us CPU a step")
