"""A real run of steps that do nothing costs no more than Snakemake needs for jobs that do nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from benchmarks.dag import Workspace, random_dag
from benchmarks.measure import Side, Usage, least, run
from benchmarks.table import Row

_SIDES = {
    "ours": "ours",
    "greedy": "plain Snakemake, greedy scheduler",
    "default": "plain Snakemake, default scheduler (ilp)",
}


def run_noop(folder: Path, shrink: int) -> Iterator[Row]:
    return _compared("run_noop", folder, 200 // shrink, rounds=5, bar=0.9, default_too=True)


def run_noop_1000(folder: Path, shrink: int) -> Iterator[Row]:
    return _compared("run_noop_1000", folder, 1_000 // shrink, rounds=3, bar=1.1, default_too=False)


def _compared(name: str, folder: Path, size: int, *, rounds: int, bar: float, default_too: bool) -> Iterator[Row]:
    numbers = itertools.count()

    def new() -> Workspace:
        return Workspace(folder / f"run-{next(numbers)}", random_dag(size))

    def ours() -> Usage:
        workspace = new()
        return run(workspace.ours("-j", "2"), workspace.folder, expect=f"  {size}/{size}\n")

    def plain(*options: str) -> Usage:
        workspace = new()
        done = f"{size + 1} of {size + 1} steps (100%) done"  # With `rule all`.
        return run(workspace.plain("-j", "2", *options), workspace.folder, expect=done)

    sides: dict[str, Side] = {"ours": ours, "greedy": plain}
    if default_too:
        sides["default"] = lambda: plain("--scheduler", "ilp")
    usages = least(rounds, **sides)
    wall = {side: usage.wall for side, usage in usages.items()}
    for side in (side for side in sides if side != "ours"):
        most = bar if side == "greedy" else None
        yield Row(name, f"wall of {size:,} steps / {_SIDES[side]}", wall["ours"] / wall[side], "x", most)
    for side in sides:
        yield Row(name, f"{_SIDES[side]}, start-up included", wall[side], "s wall")
    for side in sides:
        yield Row(name, f"{_SIDES[side]}, start-up included", usages[side].cpu, "s CPU")
