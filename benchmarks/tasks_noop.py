"""A thousand tasks of one step cost a fraction of a thousand steps: here, on an object store, and on a real Slurm.

A task's cost is that of a run of many less that of a run of one, divided by the others; a step's likewise. So the start
of Snakemake is on neither side. On Slurm the peer is a bare job array in which each element starts the same Python and
calls the same function, with no lease, log or record.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import ROOT
from benchmarks.dag import Dag, Workspace
from benchmarks.emulator import BUCKET, google_storage
from benchmarks.measure import Usage, least, run
from benchmarks.remote_steps import ON_SLURM, RemoteSteps, snakemake
from benchmarks.slurm_cluster import ClusterUsage, slurm
from benchmarks.table import Row

_WORKFLOWS = ROOT / "benchmarks" / "workflows"


class Tasks:
    """An experiment of one step with this many tasks, in a folder of its own."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.count = count
        self.experiment = folder / "experiment.py"
        folder.mkdir()
        shutil.copy(_WORKFLOWS / "tasks.py", self.experiment)
        (folder / "tasks.json").write_text(json.dumps(count))

    def command(self, *options: str, prefix: str | None = None) -> list[str]:
        return snakemake(self.experiment, prefix or str(self.folder / "marin"), *options)

    @property
    def all_done(self) -> str:
        return f" {self.count}/{self.count}"


def tasks_noop(folder: Path, shrink: int) -> Iterator[Row]:
    many, largest, size = 1_000 // shrink, 10_000 // shrink, 200 // shrink
    numbers = itertools.count()

    def tasks(count: int) -> Usage:
        array = Tasks(folder / f"run-{next(numbers)}", count)
        return run(array.command("--cores", "2"), array.folder, expect=array.all_done)

    def steps(count: int) -> Usage:
        dag = Dag(sources=[[] for _ in range(count)], versions=list(range(count)))
        workspace = Workspace(folder / f"run-{next(numbers)}", dag)
        return run(workspace.ours("-j", "2"), workspace.folder, expect=f"  {count}/{count}\n")

    usages = least(
        3, one_task=lambda: tasks(1), tasks=lambda: tasks(many), one_step=lambda: steps(1), steps=lambda: steps(size)
    )
    task = (usages["tasks"].cpu - usages["one_task"].cpu) / (many - 1)
    step = (usages["steps"].cpu - usages["one_step"].cpu) / (size - 1)
    yield Row("tasks_noop", f"CPU a task of {many:,} / CPU a step of {size}", task / step, "x", 0.25)
    yield Row("tasks_noop", f"a task of {many:,}", task * 1000, "ms CPU")
    yield Row("tasks_noop", f"a step of {size}", step * 1000, "ms CPU")
    wall = (usages["tasks"].wall - usages["one_task"].wall) / (many - 1)
    yield Row("tasks_noop", f"a task of {many:,}, two at a time", wall * 1000, "ms wall")
    huge = tasks(largest)
    yield Row("tasks_noop", f"a task of {largest:,}", (huge.cpu - usages["one_task"].cpu) / largest * 1000, "ms CPU")
    yield Row("tasks_noop", f"largest process of a run of {largest:,} tasks", huge.memory, "MB")
    yield Row("tasks_noop", "largest process of a run of one task", usages["one_task"].memory, "MB")


def tasks_store(folder: Path, shrink: int) -> Iterator[Row]:
    many = 100 // shrink
    calls = {}
    with google_storage() as emulator:
        for count in (1, many):
            array = Tasks(folder / f"run-{count}", count)
            command = array.command("--cores", "2", prefix=f"gs://{BUCKET}/run-{count}")
            emulator.forget_calls()
            run(command, array.folder, expect=array.all_done, environment=emulator.environment)
            calls[count] = len(emulator.calls())
    yield Row("tasks_store", f"a task of {many}, on the GCS emulator", (calls[many] - calls[1]) / (many - 1), "calls")


def slurm_tasks(folder: Path, shrink: int) -> Iterator[Row]:
    many, size = 1_000 // shrink, 50 // shrink
    numbers = itertools.count()
    with slurm() as cluster:

        def ours(count: int) -> ClusterUsage:
            array = Tasks(folder / f"run-{next(numbers)}", count)
            return cluster.run(array.command(*ON_SLURM), array.folder, jobs=count, expect=array.all_done)

        def bare(count: int) -> ClusterUsage:
            array = Tasks(folder / f"run-{next(numbers)}", count)
            command = ["bash", str(_WORKFLOWS / "sbatch_array.sh"), str(count), sys.executable, str(array.experiment)]
            return cluster.run(command, array.folder, jobs=count)

        def steps(count: int) -> ClusterUsage:
            remote = RemoteSteps(folder / f"run-{next(numbers)}", count)
            return cluster.run(remote.command(*ON_SLURM), remote.folder, jobs=count, expect=remote.all_done)

        one = {"ours": ours(1), "bare": bare(1), "steps": steps(1)}
        all_of_them = {"ours": ours(many), "bare": bare(many), "steps": steps(size)}
    yield Row("slurm_tasks", f"wall of {many:,} tasks / bare array", _ratio(all_of_them, "ours", "bare"), "x", 1.5)
    task = (all_of_them["ours"].wall - one["ours"].wall) / (many - 1)
    step = (all_of_them["steps"].wall - one["steps"].wall) / max(1, size - 1)
    yield Row("slurm_tasks", f"wall a task of {many:,} / wall a step of {size}", task / step, "x", 0.1)
    for side, name, count in (
        ("ours", "a task", many),
        ("bare", "an element of the bare array", many),
        ("steps", "a step", size),
    ):
        usage = all_of_them[side]
        yield Row("slurm_tasks", f"{name}, start-up included", usage.wall / count * 1000, "ms wall")
        yield Row("slurm_tasks", f"{name}, start-up included", usage.cpu / count * 1000, "ms CPU")


def _ratio(usages: dict[str, ClusterUsage], side: str, other: str) -> float:
    return usages[side].wall / usages[other].wall
