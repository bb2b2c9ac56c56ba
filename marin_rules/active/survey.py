"""What is under way: the steps that run or wait in Slurm's queue, and the runs that they belong to. Only reads.

A step runs if somebody has its lease, and waits if Slurm has a job for it. Both are looked for among the steps of the
runs that this user has started; Slurm jobs of runs that are forgotten are found by their tags.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marin_rules.active.active_step import Step, UnderWay, name_in
from marin_rules.active.processes import is_from_before_a_restart
from marin_rules.clusters.slurm.commands import SlurmError, has_slurm
from marin_rules.clusters.slurm.queue import SlurmJob, Tag, our_jobs
from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenPlan, absolute
from marin_rules.state.info import read_info
from marin_rules.state.run_presence import BEAT_SECONDS
from marin_rules.state.run_registry import KnownRun, known_runs
from marin_rules.state.status import Status, read_statuses
from marin_rules.state.step_lease import peek
from marin_rules.storage.leases.record import UNREADABLE, CorruptLeaseError, LeaseRecord

_SILENT_HERE_SECONDS = 3 * BEAT_SECONDS
_SILENT_SECONDS = 15 * BEAT_SECONDS
"""After how long without a sign of life a driver or worker is taken for dead whose process cannot be seen: on a machine
that was restarted under the same name, and elsewhere. Two clocks are compared, so that it is long."""


@dataclass(frozen=True)
class RunInView:
    """A run that has not ended, as far as is known."""

    run: KnownRun
    steps: list[Step] = field(default_factory=list)
    """All of its plan, also those that it does not want itself."""

    done: int = 0
    left: int = 0
    trouble: str | None = None
    """Why nothing is known of its steps."""


@dataclass(frozen=True)
class Survey:
    """All that is under way at one moment."""

    runs: list[RunInView]
    under_way: list[UnderWay]
    slurm_trouble: str | None = None
    """Why nothing was heard of Slurm's jobs."""

    @property
    def leftovers(self) -> list[KnownRun]:
        """Runs of which nothing is left but files: the driver is dead, and so is all that it had started."""
        if self.slurm_trouble is not None:
            return []
        return [
            view.run
            for view in self.runs
            if is_dead_driver(view.run, time.time()) and all(map(_is_dead, self.of_run(view.run.id)))
        ]

    def without(self, runs: Sequence[KnownRun]) -> Survey:
        """The rest of what is under way."""
        gone = {run.id for run in runs}
        return Survey(
            [view for view in self.runs if view.run.id not in gone],
            [found for found in self.under_way if found.run not in gone],
            self.slurm_trouble,
        )

    def of_run(self, run_id: str) -> list[UnderWay]:
        return [found for found in self.under_way if found.run == run_id]

    def of_step(self, step: Step) -> list[UnderWay]:
        """Whoever has a step, also one that no known run wants."""
        found = [one for one in self.under_way if one.step.is_same(step)]
        if found or step.runs or step.output_path is None:
            return found
        jobs = [one.job for one in self.under_way if one.job is not None and step.is_of(one.job.tag)]
        gone = {view.run.id: view.run.driver_is_gone for view in self.runs}
        return list(_holders(step, live_lease(step.output_path), jobs, "", gone))


def is_dead_driver(run: KnownRun, now: float) -> bool:
    """Whether nobody drives a run any more. One on a machine that we do not see counts as dead after a long silence."""
    if run.driver_is_gone:
        return True
    return now - run.seen > (_SILENT_HERE_SECONDS if is_from_before_a_restart(run.driver) else _SILENT_SECONDS)


def _is_dead(found: UnderWay) -> bool:
    """A step without a job, whose worker has been silent for longer than any trouble of a store lasts."""
    silent = found.silent_seconds
    return found.job is None and silent is not None and silent > _SILENT_SECONDS


def look() -> Survey:
    """See what is under way now. A Slurm that does not answer is no error: the rest can still be seen."""
    trouble = None
    jobs: list[SlurmJob] = []
    try:
        jobs = [job for job in our_jobs().values() if job.is_live] if has_slurm() else []
    except SlurmError as error:
        trouble = str(error)
    runs = known_runs()
    search = _Search(runs, jobs)
    views = [search.look_at(run) for run in runs]
    search.take_the_rest()
    return Survey(views, search.found, trouble)


def live_lease(output_path: str) -> LeaseRecord | None:
    """Who works on a step; None if nobody does, or only somebody who is certainly dead."""
    try:
        record = peek(output_path)
    except CorruptLeaseError:
        return UNREADABLE
    if record is None or (record.owner is not None and record.owner.is_dead_here()):
        return None
    return record


def run_block(output_path: str) -> Mapping[str, Any]:
    """What the last worker of a step wrote down about its attempt; nothing if there is none, or no telling."""
    try:
        block: Mapping[str, Any] = (read_info(output_path) or {}).get("run", {})
    except (MarinRulesError, OSError):
        return {}
    return block


class _Search:
    """Goes through the runs. Each lease and each job is told of once."""

    def __init__(self, runs: Iterable[KnownRun], jobs: Iterable[SlurmJob]) -> None:
        self.found: list[UnderWay] = []
        self._gone = {run.id: run.driver_is_gone for run in runs}
        self._seen: set[str] = set()
        self._jobs: dict[tuple[str, str], list[SlurmJob]] = {}
        for job in jobs:
            if job.tag is not None:
                self._jobs.setdefault((job.tag.step, job.tag.place), []).append(job)

    def look_at(self, run: KnownRun) -> RunInView:
        try:
            plan = FrozenPlan.read(run.plan_path)
            paths = [absolute(step.output_path, run.working_directory) for step in plan.steps]
            statuses = read_statuses(paths)
        except (MarinRulesError, OSError) as error:
            return RunInView(run, trouble=str(error))
        steps = []
        done = left = 0
        for planned, path in zip(plan.steps, paths, strict=True):
            tag = Tag.of(run.id, planned.key, path)
            step = Step(planned.name, planned.key, path, (run.id,) if planned.needed else (), tag.place)
            steps.append(step)
            if planned.needed:
                is_done = statuses[path] is Status.SUCCESS
                done, left = done + is_done, left + (not is_done)
                jobs = self._jobs.pop((tag.step, tag.place), [])
                if jobs or (statuses[path] is Status.RUNNING and path not in self._seen):
                    lease = None if path in self._seen else live_lease(path)
                    self._seen.add(path)
                    self.found += _holders(step, lease, jobs, run.id, self._gone)
        return RunInView(run, steps, done, left)

    def take_the_rest(self) -> None:
        """Jobs that no known run has planned."""
        for (key, place), jobs in self._jobs.items():
            for job in jobs:
                assert job.tag is not None
                step = Step(name_in(key), key, None, place=place)
                self.found.append(
                    UnderWay(step, job.tag.run, job=job, driver_is_gone=self._gone.get(job.tag.run, True))
                )


def _holders(
    step: Step, lease: LeaseRecord | None, jobs: Iterable[SlurmJob], run_id: str, gone: Mapping[str, bool]
) -> Iterator[UnderWay]:
    """Whoever has a step or is to have it: a worker, and jobs. `gone` tells of the drivers of the known runs."""
    assert step.output_path is not None
    block = run_block(step.output_path)
    is_by_holder = lease is not None and block.get("worker_id") == lease.worker_id
    attempt = _whole_number(block.get("attempt")) + (not is_by_holder)
    recorded = _recorded_job(block) if is_by_holder else None
    for job in jobs:
        assert job.tag is not None
        # A job that has no machine has no worker either, unless it has just lost its machine.
        has_it = bool(job.nodes) or job.id == recorded
        holder, lease = (lease, None) if has_it else (None, lease)
        yield UnderWay(step, job.tag.run, holder, job, recorded, attempt, gone.get(job.tag.run, True))
    if lease is not None:
        worker_run = str(block["id"]) if is_by_holder and "id" in block else run_id
        # A run that is not known may well have its driver: that of another user.
        yield UnderWay(step, worker_run, lease, None, recorded, attempt, gone.get(worker_run, False))


def _recorded_job(block: Mapping[str, Any]) -> str | None:
    slurm = block.get("slurm")
    number = slurm.get("job_id") if isinstance(slurm, Mapping) else None
    return None if number is None else str(number)


def _whole_number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
