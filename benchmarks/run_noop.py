"""A real run of steps that do nothing costs little more than Snakemake needs for jobs that do nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from benchmarks.dag import Workspace, random_dag
from benchmarks.measure import Usage, least, run
from benchmarks.table import Row

_ROUNDS = 5
_SIDES = {
    "ours": "ours",
    "greedy": "plain Snakemake, greedy scheduler",
    "default": "plain Snakemake, default scheduler (ilp)",
}


def run_noop(folder: Path, shrink: int) -> Iterator[Row]:
    size = 200 // shrink
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

    usages = least(_ROUNDS, ours=ours, greedy=plain, default=lambda: plain("--scheduler", "ilp"))
    wall = {side: usage.wall for side, usage in usages.items()}
    for side, bar in (("greedy", 1.5), ("default", None)):
        yield Row("run_noop", f"wall of {size} steps / {_SIDES[side]}", wall["ours"] / wall[side], "x", bar)
    for side, name in _SIDES.items():
        yield Row("run_noop", f"{name}, start-up included", wall[side], "s wall")
    for side, name in _SIDES.items():
        yield Row("run_noop", f"{name}, start-up included", usages[side].cpu, "s CPU")
