"""A first dry run costs a fraction of what Snakemake needs for the same graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.dag import Workspace, random_dag
from benchmarks.measure import least, run
from benchmarks.table import Row

_ROUNDS = 3


def dry_run_cold(folder: Path, shrink: int) -> Iterator[Row]:
    size = 10_000 // shrink
    workspace = Workspace(folder / "cold", random_dag(size))
    usages = least(
        _ROUNDS,
        ours=partial(run, workspace.ours("-n"), workspace.folder, expect=f"{size} steps: {size} would run"),
        plain=partial(run, workspace.plain("-n"), workspace.folder, expect=f"do_nothing {size:>8}"),
        quiet=partial(run, workspace.plain("-n", "--quiet"), workspace.folder),
    )
    ours, plain, quiet = (usages[side].cpu for side in ("ours", "plain", "quiet"))
    yield Row("dry_run_cold", f"`-n`, {size:,} new steps / plain Snakemake", ours / plain, "x", 0.4)
    yield Row("dry_run_cold", "ours, from start to end", ours, "s CPU")
    yield Row("dry_run_cold", "plain Snakemake, from start to end", plain, "s CPU")
    yield Row("dry_run_cold", "plain Snakemake with `--quiet`, which shows nothing", quiet, "s CPU")
