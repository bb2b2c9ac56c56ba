"""The smallest run there is takes little longer than Snakemake needs to start and find nothing to do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.dag import Workspace, chain
from benchmarks.measure import Usage, least, run
from benchmarks.table import Row

_ROUNDS = 7


def two_steps(folder: Path, shrink: int) -> Iterator[Row]:
    numbers = itertools.count()

    def ours() -> Usage:
        workspace = Workspace(folder / f"run-{next(numbers)}", chain(2))
        return run(workspace.ours("-j", "2"), workspace.folder, expect="  2/2\n")

    idle = Workspace(folder / "bare", chain(2))
    usages = least(_ROUNDS, ours=ours, bare=partial(run, idle.bare("-j", "2"), idle.folder))
    wall = {side: usage.wall for side, usage in usages.items()}
    yield Row("two_steps", "two new steps - bare start-up of Snakemake", wall["ours"] - wall["bare"], "s wall", 0.5)
    yield Row("two_steps", "two new steps, from start to end", wall["ours"], "s wall")
    yield Row("two_steps", "bare start-up of Snakemake", wall["bare"], "s wall")
