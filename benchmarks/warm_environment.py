"""A step's own environment, once it is there, adds next to nothing to a step.

Steps that do nothing run on a real Slurm, with `pip_dependency_groups` and without; the environment has been made
before. In these runs the difference is lost among all that Slurm does. So the bar is for the job alone: the batch
script of one step of each run is taken from Slurm and run here, again and again and in turns, from the start of bash to
the end of the worker. (Only the plan is a new one of the same steps, since a run removes its own.) Either way the job
starts a Python.

The difference can be negative, which is no merit of environments: fsspec reads the entry points of all that is
installed beside it, and the driver's Python may have hundreds of packages where the environment has a few.

A local step does not, unless it has an environment of its own: without one, a warm worker is forked for it. What that
makes is told, without a bar.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.measure import BenchmarkError, Usage, fresh, least, run
from benchmarks.remote_steps import ON_SLURM, RemoteSteps
from benchmarks.slurm_cluster import Cluster, ClusterUsage, slurm
from benchmarks.table import Row

_GROUPS = {"own": ("iniconfig",), "none": ()}
_ROUNDS = 20
_LOCAL_ROUNDS = 3
_ADDED = "own environment - none"


def warm_environment(folder: Path, shrink: int) -> Iterator[Row]:
    size = 20 // shrink
    numbers = itertools.count()
    environments = {"MARIN_ENVIRONMENTS": str(folder / "environments")}

    def new(side: str, count: int) -> RemoteSteps:
        return RemoteSteps(folder / f"run-{next(numbers)}", count, _GROUPS[side])

    def local(side: str) -> Usage:
        steps = new(side, size)
        return run(steps.command("-j", "2"), steps.folder, expect=steps.all_done, environment=environments)

    def on_slurm(side: str, cluster: Cluster, count: int) -> tuple[ClusterUsage, _Job]:
        steps = new(side, count)
        command = steps.command(*ON_SLURM)
        usage = cluster.run(command, steps.folder, jobs=count, expect=steps.all_done, **environments)
        return usage, _Job(steps, cluster.script_of_first_job())

    with slurm() as cluster:
        on_slurm("own", cluster, 1)  # Not measured: makes the environment.
        runs = {side: on_slurm(side, cluster, size) for side in _GROUPS}
    jobs = least(max(_ROUNDS // shrink, 3), **{side: job.run for side, (_, job) in runs.items()})
    local_runs = least(_LOCAL_ROUNDS, **{side: partial(local, side) for side in _GROUPS})

    def milliseconds(what: str, of_own: float, of_none: float, kind: str, bar: float | None = None) -> Row:
        return Row("warm_environment", f"{what}: {_ADDED}", (of_own - of_none) * 1000, f"ms {kind} a step", bar)

    own, none = jobs["own"], jobs["none"]
    yield milliseconds("a job by itself", own.wall, none.wall, "wall", bar=50)
    yield milliseconds("a job by itself", own.cpu, none.cpu, "CPU", bar=50)
    yield Row("warm_environment", "a job by itself, own environment", own.wall * 1000, "ms wall a step")
    yield Row("warm_environment", "a job by itself, none", none.wall * 1000, "ms wall a step")
    for side, name in (("own", "own environment"), ("none", "none")):
        usage, _ = runs[side]
        yield Row("warm_environment", f"{size} steps on Slurm, {name}", usage.wall * 1000 / size, "ms wall a step")
        yield Row("warm_environment", f"their jobs alone, {name}", usage.cpu_of_jobs * 1000 / size, "ms CPU a step")
    own, none = local_runs["own"], local_runs["none"]
    what = f"{size} local steps, two at a time"
    yield milliseconds(what, own.wall / size, none.wall / size, "wall")
    yield milliseconds(what, own.cpu / size, none.cpu / size, "CPU")


class _Job:
    """The batch script of one of the steps, to be run here."""

    def __init__(self, steps: RemoteSteps, script: str) -> None:
        fresh("plan", steps.folder)
        self._steps = steps
        self._path = steps.folder / "job"
        self._path.write_text(re.sub(r"--digest \S+ --plan \S+", f"--plan {steps.folder / 'plan'}", script))
        self._path.chmod(0o755)

    def run(self) -> Usage:
        self._steps.forget()
        usage = run([str(self._path)], self._steps.folder)
        if (left := self._steps.statuses()) != ["SUCCESS"]:
            raise BenchmarkError(f"{self._path.read_text()}\nleft {left}, not one step that succeeded")
        return usage
