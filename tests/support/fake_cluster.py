"""An executor between a cluster in memory (`fake_queue`), a clock that runs only when told to, and a Snakemake of few
words: runs on a cluster in milliseconds.

Steps, leases, statuses and runs are real files in the folder of the test; what happens to jobs, the test says.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from marin_rules import ExecutorStep
from marin_rules.clusters.prices import Price
from marin_rules.clusters.protocol import (
    Cluster,
    JobRequest,
)
from marin_rules.engine import cluster_executor, plan_in_process
from marin_rules.engine.cluster_executor import ClusterExecutor
from marin_rules.engine.cluster_settings import ClusterSettings
from marin_rules.engine.cluster_tracking import Clock
from marin_rules.machines import MachineRequest
from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.run import new_run
from marin_rules.state.info import info_path
from marin_rules.state.status import Status, status_path
from marin_rules.units import timestamp
from support.fake_queue import FakeQueue


@dataclass
class FakeClock(Clock):
    """Time passes only when somebody waits, and things happen meanwhile."""

    time: float = 1000.0
    meanwhile: list[Callable[[], object]] = field(default_factory=list)
    """What happens during the next waits, one by one."""

    waited: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def wait(self, event: threading.Event, seconds: float) -> None:
        self.waited.append(seconds)
        self.time += seconds
        if self.meanwhile:
            self.meanwhile.pop(0)()
        if len(self.waited) > 1000:
            raise AssertionError("waited for ever")


@dataclass(frozen=True)
class FakeSite:
    """See `protocol.Site`."""

    name: str = "fake"
    environments: str | None = None
    trust: tuple[str, ...] = ()
    hourly: Price | None = None

    def resources(
        self, request: MachineRequest, step: str, attempt: int = 1, regions: Sequence[str] | None = None
    ) -> Mapping[str, Any]:
        return {"mem_mb": request.memory_mb * attempt}

    def defaults(self) -> Mapping[str, Any]:
        return {"pool": "common"}

    def driver_resources(self) -> Mapping[str, Any]:
        return {"cpus_per_task": 1}

    def describe(self, resources: Mapping[str, Any]) -> str:
        return f"{resources['cpus_per_task']} cores"

    def price(self, resources: Mapping[str, Any]) -> Price | None:
        return self.hourly

    def check(self, request: JobRequest) -> None:
        """It takes everything."""


class FakeJob:
    """One of Snakemake's jobs: a step, or a group of them."""

    def __init__(self, step: FrozenStep | None, number: int) -> None:
        self.wildcards = SimpleNamespace(**({} if step is None else {"step": step.key}))
        self.jobs = [] if step is None else [self]
        self.name = "group" if step is None else step.name
        self.jobid = number
        self.threads = 3
        self.resources: dict[str, Any] = {"mem_mb": 500, "runtime": None}
        self.attempt, self.restart_times = 1, 2
        self.conda_env = None
        self.shellcmd = f"run {self.name}"
        self._is_group = step is None

    def is_group(self) -> bool:
        return self._is_group

    def log_info(self) -> None: ...

    def register(self, external_jobid: str | None) -> None: ...


class _QuietExecutor(ClusterExecutor):
    """Looks at jobs when the test says so, and submits them at once."""

    def _wait_thread(self) -> None: ...

    def submit_again(self, job: Any) -> None:
        self.run_job(job)

    def format_job_exec(self, job: Any) -> str:
        return f"snakemake --cores {self.cores}"

    def print_job_error(self, job_info: SubmittedJobInfo, msg: str | None = None, **more: Any) -> None:
        failures: list[str] = vars(self.workflow)["failures"]  # The stand-in that `Driver` makes.
        failures.append(str(msg))


@dataclass
class Settings(ClusterSettings):
    cluster = "fake"

    def __post_init__(self) -> None: ...

    def job_resources(self) -> Mapping[str, Any]:
        return {"reservation": "course"}


class Driver:
    """A run of an experiment: an executor, and what it has reported and said."""

    def __init__(self, world: ClusterWorld, plan: FrozenPlan, settings: ClusterSettings) -> None:
        self.plan = plan
        self.said: list[str] = []
        self.done: list[Any] = []
        self.failed: list[Any] = []
        self.failures: list[str] = []
        scheduler = SimpleNamespace(
            submit_callback=lambda job: None, finish_callback=self.done.append, error_callback=self.failed.append
        )
        workflow = SimpleNamespace(
            dag=None, main_snakefile="Snakefile", scheduler=scheduler, executor_settings=settings,
            failures=self.failures, workdir_init=str(world.folder),
            remote_execution_settings=SimpleNamespace(
                max_status_checks_per_second=10, jobname="job.{jobid}", jobscript=None, immediate_submit=False,
                seconds_between_status_checks=15,
            ),
            storage_settings=SimpleNamespace(shared_fs_usage=frozenset()),
            deployment_settings=SimpleNamespace(deployment_method=frozenset()),
        )  # fmt: skip
        plan_in_process.start(plan).site = FakeSite()
        logger = SimpleNamespace(info=lambda text: self.said.append(text.partition(" ")[2]))
        self.executor: Any = _QuietExecutor(workflow, logger)
        self.jobs = {step.name: FakeJob(step, number) for number, step in enumerate(plan.steps)}

    def submit(self, *names: str) -> None:
        for name in names:
            self.executor.run_job(self.jobs[name])

    def look(self) -> list[str]:
        """One look at the jobs; the names of those that are still waited for."""
        active = list(self.executor.active_jobs)
        self.executor.active_jobs.clear()

        async def watch() -> list[SubmittedJobInfo]:
            return [info async for info in self.executor.check_active_jobs(active)]

        self.executor.active_jobs.extend(asyncio.run(watch()))
        return [info.job.name for info in self.executor.active_jobs]

    def cancel(self) -> None:
        self.executor.cancel_jobs(list(self.executor.active_jobs))

    @property
    def results(self) -> tuple[list[str], list[str]]:
        """The names of the steps that are done and that have failed."""
        return [job.name for job in self.done], [job.name for job in self.failed]


class ClusterWorld:
    """A folder of results, a cluster and a clock; several drivers may share them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.cluster = FakeQueue()
        self.clock = FakeClock()
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.chdir(folder)
        monkeypatch.setattr(cluster_executor, "Clock", lambda: self.clock)
        found = Cluster(
            "fake",
            open_queue=lambda name: self.cluster,
            open_site=lambda name: FakeSite(),
            first_file=lambda: "",
            is_here=lambda name: True,
        )
        monkeypatch.setattr(cluster_executor, "open_cluster", {"fake": found}.__getitem__)
        monkeypatch.setattr(plan_in_process, "_current", None)

    def plan(self, *names: str, tasks: int | None = None) -> FrozenPlan:
        root = str(self.folder / "out")
        run = replace(new_run(prefix=root, caller_path=str(self.folder / "x.py")), python_path=(), git_commit=None)
        return freeze(make_plan([ExecutorStep(name, nothing, {}, tasks=tasks) for name in names], prefix=root), run)

    def driver(self, *names: str, forced: bool = False, tasks: int | None = None, **settings: Any) -> Driver:
        plan = self.plan(*names, tasks=tasks)
        plan.forced = tuple(range(len(plan.steps))) if forced else ()
        return Driver(self, plan, Settings(**settings))


def nothing(config: Any) -> None:
    """The function of all steps here."""


def write_status(step: FrozenStep, status: Status) -> None:
    """What the worker of a step has written."""
    os.makedirs(step.output_path, exist_ok=True)
    Path(status_path(step.output_path)).write_bytes(status.encode())


def write_attempt(step: FrozenStep, job: str, *, progress: bool) -> None:
    """What is left of an attempt that a stop signal ended."""
    write_status(step, Status.CANCELLED)
    block = {"started": timestamp(0.0), "fake": {"job_id": job}}
    Path(info_path(step.output_path)).write_text(json.dumps({"run": block}))
    if progress:
        Path(step.output_path, "checkpoint").write_text("half")
