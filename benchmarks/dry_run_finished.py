"""To learn that all is done costs little more than to start Snakemake."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.dag import Workspace, random_dag
from benchmarks.measure import fresh, least, run
from benchmarks.table import Row

_ROUNDS = 5


def dry_run_finished(folder: Path, shrink: int) -> Iterator[Row]:
    size = 10_000 // shrink
    workspace = Workspace(folder / "finished", random_dag(size))
    fresh("finish", workspace.folder)
    usages = least(
        _ROUNDS,
        ours=partial(run, workspace.ours("-n"), workspace.folder, expect=f"{size} steps: {size} cached"),
        bare=partial(run, workspace.bare("-n"), workspace.folder),
    )
    ours, bare = usages["ours"].cpu, usages["bare"].cpu
    yield Row("dry_run_finished", f"`-n`, {size:,} finished steps - bare start-up", ours - bare, "s CPU", 2)
    yield Row("dry_run_finished", "bare start-up of Snakemake", bare, "s CPU")
