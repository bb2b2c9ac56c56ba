"""The tests' Slurm for benchmarks: a real cluster on this machine, and what a run on it costs, its jobs included.

No process of a job descends from the process that submitted it. They are started, and waited for, by a daemon that each
job has (slurmstepd), and that the node's daemon leaves behind. This process adopts what is left behind. So it learns at
the end of each slurmstepd what that and all below it have used: the batch script, whatever the script starts, and
likewise the processes of each `srun` in it. That is the kernel's account, no sample is missed.

Not counted are the daemons of the cluster and what they do after each job: these do the same for any job.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.measure import BenchmarkError, Usage, run
from marin_rules.worker.step_process import adopt_orphans, children


@dataclass(frozen=True)
class ClusterUsage(Usage):
    """The cost of a run: of its driver, and of its jobs."""

    cpu_of_jobs: float
    """How much of `cpu` was used on nodes."""


class Cluster:
    """A cluster of the tests, for commands that submit jobs to it."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._daemons = set(children(os.getpid()))

    @property
    def environment(self) -> dict[str, str]:
        return dict(self._cluster.environment)

    def run(
        self, command: Sequence[str], folder: Path, *, jobs: int, expect: str = "", **environment: str
    ) -> ClusterUsage:
        """Run a command that must succeed, say `expect`, and submit this many jobs that succeed."""
        self._cluster.reset()
        self._collect()
        usage = run(command, folder, expect=expect, environment={**self.environment, **environment})
        self._cluster.cancel_all()  # There are none; but the last ones may not be over for Slurm.
        states = Counter(job.state for job in self._cluster.jobs())
        if states != {"COMPLETED": jobs}:
            raise BenchmarkError(f"{' '.join(command)}\nleft other jobs than {jobs} that are COMPLETED: {dict(states)}")
        cpu_of_jobs = self._collect()
        return ClusterUsage(usage.wall, usage.cpu + cpu_of_jobs, cpu_of_jobs)

    def script_of_first_job(self) -> str:
        """The batch script of the first job of the last run."""
        return str(self._cluster.run("scontrol", "write", "batch_script", self._cluster.jobs()[0].id, "-"))

    def _collect(self) -> float:
        """The CPU seconds of all that has ended since the last time and was left to this process."""
        seconds = 0.0
        for process in set(children(os.getpid())) - self._daemons:
            _, _, usage = os.wait4(process, 0)
            seconds += usage.ru_utime + usage.ru_stime
        return seconds


@contextmanager
def slurm() -> Iterator[Cluster]:
    """A cluster of its own for one benchmark."""
    tests = str(ROOT / "tests")
    if tests not in sys.path:
        sys.path.insert(0, tests)
    from support.slurm.cluster import SlurmCluster
    from support.slurm.requirements import SlurmUnavailableError

    adopt_orphans()
    # Not in the folder of the benchmark, whose path can be too long for the sockets of Slurm.
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        try:
            cluster = SlurmCluster(Path(folder))
        except SlurmUnavailableError as error:
            raise BenchmarkError(str(error)) from error
        try:
            yield Cluster(cluster)
        finally:
            cluster.stop()
