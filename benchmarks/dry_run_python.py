"""`python experiment.py --dry_run` plans, looks at every status and shows the table without starting Snakemake."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.dag import Workspace, random_dag
from benchmarks.measure import Usage, least, run
from benchmarks.table import Row

_BARS = {10_000: (2.5, None), 100_000: (20, 1000)}
"""Steps -> CPU seconds and megabytes."""

_ROUNDS = 3


def dry_run_python(folder: Path, shrink: int) -> Iterator[Row]:
    for full_size, (seconds, megabytes) in _BARS.items():
        size = full_size // shrink
        workspace = Workspace(folder / str(size), random_dag(size))
        command = [sys.executable, "experiment.py", "--dry_run", "--prefix", str(workspace.prefix)]

        def ours(
            command: list[str] = command, place: Path = workspace.folder, said: str = f"{size} steps: {size} would run"
        ) -> Usage:
            return run(command, place, expect=said)

        usage = least(_ROUNDS, ours=ours)["ours"]
        yield Row("dry_run_python", f"`python x.py --dry_run`, {size:,} new steps", usage.cpu, "s CPU", seconds)
        yield Row("dry_run_python", f"the same, {size:,} new steps: peak memory", usage.memory, "MB", megabytes)
