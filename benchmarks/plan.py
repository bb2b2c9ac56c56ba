"""Planning costs so little a step, and grows in proportion to the steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.dag import Workspace, random_dag
from benchmarks.measure import fresh
from benchmarks.table import Row

_ROUNDS = {1_000: 9, 10_000: 9, 100_000: 3}
"""Size -> how often it is measured: small ones are as cheap to repeat as they are easy to disturb."""


def plan(folder: Path, shrink: int) -> Iterator[Row]:
    rounds = {size // shrink: count for size, count in _ROUNDS.items()}
    workspaces = {size: Workspace(folder / str(size), random_dag(size)).folder for size in rounds}
    samples: dict[int, list[dict[str, float]]] = {size: [] for size in rounds}
    most = max(rounds.values())
    for turn in range(most):
        for size, count in rounds.items():
            if turn % (most // count) == 0:
                samples[size].append(fresh("plan", workspaces[size]))
    total = {size: min(sample["plan"] for sample in samples[size]) for size in rounds}
    frozen = {size: min(sample["freeze"] for sample in samples[size]) for size in rounds}

    _, middle, large = rounds
    for size in rounds:
        each, bar = total[size] / size * 1e6, 80 if size == middle else None
        yield Row("plan", f"identity and plan, {size:,} steps", each, "us CPU a step", bar)
    yield Row("plan", f"plan of {large:,} steps / {middle:,} steps", total[large] / total[middle], "x", 12)
    for size in rounds:
        yield Row("plan", f"freeze to bytes, {size:,} steps", frozen[size] / size * 1e6, "us CPU a step")
