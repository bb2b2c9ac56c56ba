"""Steps that do nothing, as jobs of a real Slurm: at most a quarter of what Snakemake's own Slurm executor takes.

Wall and CPU seconds are those of the whole run, the driver's start-up included; CPU seconds are those of the driver's
process tree and of all processes of the jobs (`slurm_cluster` says how these are known), so both times that the stock
executor starts Snakemake in a job are in them. The plain loop of `sbatch` shows what Slurm itself takes.

There is one round, since the stock side takes minutes: other work on the machine may hit one side more than the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import ROOT
from benchmarks.dag import Dag, Workspace
from benchmarks.remote_steps import ON_SLURM, RemoteSteps
from benchmarks.slurm_cluster import ClusterUsage, slurm
from benchmarks.table import Row

_SIDES = {
    "ours": "ours",
    "stock": "stock Slurm executor",
    "loop": "plain loop of sbatch",
}

_LOOP = ROOT / "benchmarks" / "workflows" / "sbatch_loop.sh"

# The quickest that the stock executor has: by default it first looks after 40 seconds. (Arrays of jobs, its other way
# to submit, were slower and took more CPU.)
_STOCK_OPTIONS = (
    *("--executor", "slurm", "--jobs", "100"),
    *("--slurm-init-seconds-before-status-checks", "1"),
    *("--seconds-between-status-checks", "1"),
    *("--slurm-status-command", "squeue"),
    "--slurm-no-account",
    *("--default-resources", "slurm_partition=cpu", "mem_mb=500", "runtime=10"),
)


def slurm_noop(folder: Path, shrink: int) -> Iterator[Row]:
    size = 20 // shrink
    numbers = itertools.count()

    with slurm() as cluster:

        def new() -> Path:
            return folder / f"run-{next(numbers)}"

        def ours(size: int) -> ClusterUsage:
            steps = RemoteSteps(new(), size)
            return cluster.run(steps.command(*ON_SLURM), steps.folder, jobs=size, expect=steps.all_done)

        def stock(size: int) -> ClusterUsage:
            workspace = Workspace(new(), Dag(sources=[[] for _ in range(size)], versions=list(range(size))))
            done = f"{size + 1} of {size + 1} steps (100%) done"  # With `rule all`.
            return cluster.run(workspace.plain(*_STOCK_OPTIONS), workspace.folder, jobs=size, expect=done)

        def loop(size: int) -> ClusterUsage:
            return cluster.run(["bash", str(_LOOP), str(size)], folder, jobs=size)

        sides: dict[str, Callable[[int], ClusterUsage]] = {"ours": ours, "stock": stock, "loop": loop}
        for take in sides.values():
            take(1)  # Not measured: from now on all bytecode is there.
        usages = {name: take(size) for name, take in sides.items()}

    wall = {name: usage.wall for name, usage in usages.items()}
    cpu = {name: usage.cpu for name, usage in usages.items()}
    for what, seconds in (("wall", wall), ("CPU", cpu)):
        ratio = seconds["ours"] / seconds["stock"]
        yield Row("slurm_noop", f"{what} of {size} steps / {_SIDES['stock']}", ratio, "x", 0.25)
    for side, name in _SIDES.items():
        yield Row("slurm_noop", f"{name}, start-up included", wall[side] / size, "s wall a step")
    for side, name in _SIDES.items():
        yield Row("slurm_noop", f"{name}, start-up included", cpu[side] / size, "s CPU a step")
    for side, name in _SIDES.items():
        yield Row("slurm_noop", f"{name}, jobs alone", usages[side].cpu_of_jobs / size, "s CPU a step")
