"""A first dry run costs little more than Snakemake needs for the same graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.dag import Workspace, random_dag
from benchmarks.measure import least, run
from benchmarks.table import Row

_ROUNDS = 5


def dry_run_cold(folder: Path, shrink: int) -> Iterator[Row]:
    size = 10_000 // shrink
    workspace = Workspace(folder / "cold", random_dag(size))
    # Without its numbers a quiet run cannot tell that it planned all steps: look once, not measured.
    run(workspace.ours("-n", "--quiet", "rules"), workspace.folder, expect=f"{size} steps: {size} would run")
    run(workspace.plain("-n", "--quiet", "rules"), workspace.folder, expect=f"do_nothing {size:>8}")
    usages = least(
        _ROUNDS,
        ours=partial(run, workspace.ours("-n", "--quiet"), workspace.folder),
        plain=partial(run, workspace.plain("-n", "--quiet"), workspace.folder),
    )
    ours, plain = usages["ours"].cpu, usages["plain"].cpu
    yield Row("dry_run_cold", f"`-n --quiet`, {size:,} new steps / plain Snakemake", ours / plain, "x", 1.5)
    yield Row("dry_run_cold", "ours, from start to end", ours, "s CPU")
    yield Row("dry_run_cold", "plain Snakemake, from start to end", plain, "s CPU")
