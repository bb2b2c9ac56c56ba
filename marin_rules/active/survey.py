"""What is active: the steps that run or wait in a cluster's queue, and the runs that they belong to. Only reads.

A step runs if somebody has its lease, and waits if a cluster has a job for it. Both are looked for among the steps of
the runs that this user has started; jobs of runs that are no longer recorded are found by their tags.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from marin_rules.active.active_step import ActiveStep, StepAddress, name_in
from marin_rules.active.arrays import by_array
from marin_rules.active.drivers import ActiveDriver, look_at_drivers
from marin_rules.active.processes import can_be_seen, is_from_before_a_restart
from marin_rules.active.queues import Queues
from marin_rules.clusters.protocol import ClusterJob, JobState, JobTag
from marin_rules.errors import MarinRulesError
from marin_rules.plans.plan_file import read_plan
from marin_rules.plans.run import absolute
from marin_rules.state.driver_record import all_drivers
from marin_rules.state.info import read_info
from marin_rules.state.recorded_job import RecordedJob, recorded_job
from marin_rules.state.run_presence import BEAT_SECONDS
from marin_rules.state.run_registry import RegisteredRun, registered_runs
from marin_rules.state.status import Status, read_statuses
from marin_rules.state.step_lease import peek
from marin_rules.state.task_records import TaskCounts, stored_counts
from marin_rules.storage.leases.record import UNREADABLE, CorruptLeaseError, LeaseRecord

_SILENT_HERE_SECONDS = 3 * BEAT_SECONDS
_SILENT_SECONDS = 15 * BEAT_SECONDS
"""How long a driver or worker whose process cannot be seen may be silent before it is taken for dead: on a machine that
was restarted under the same name, and elsewhere. Two clocks are compared, so it is long."""


@dataclass(frozen=True)
class ActiveRun:
    """A run that has not ended, as far as is known."""

    run: RegisteredRun
    steps: Sequence[StepAddress] = ()
    """All of its plan, including those that it does not want itself."""

    done: int = 0
    left: int = 0
    awaited: frozenset[tuple[str, str]] = frozenset()
    """The steps that it needs and that are not done, by key and place as the tags of jobs have them."""

    trouble: str | None = None
    """Why nothing is known of its steps."""


@dataclass(frozen=True)
class Survey:
    """All that is active at one moment."""

    runs: Sequence[ActiveRun]
    steps: Sequence[ActiveStep]
    now: float
    """The moment, in seconds since 1970."""

    silent_clusters: Mapping[str, str] = field(default_factory=dict)
    """The clusters that did not list their jobs, and why."""

    drivers: Sequence[ActiveDriver] = ()
    """The submitted drivers, including those that have ended recently."""

    @property
    def leftovers(self) -> list[RegisteredRun]:
        """Runs of which only files are left: the driver is dead, and so is everything that it had started."""
        if self.silent_clusters:
            return []
        return [
            active.run
            for active in self.runs
            if is_dead_driver(active.run, self.now) and all(map(_is_dead, self.of_run(active.run.id)))
        ]

    @property
    def awaited(self) -> frozenset[tuple[str, str]]:
        """The steps that runs with a driver wait for, or will wait for, whichever run started their jobs."""
        return awaited_by_drivers(self.runs, self.now)

    def without(self, runs: Iterable[RegisteredRun]) -> Survey:
        """The rest of what is active."""
        gone = {run.id for run in runs}
        return replace(
            self,
            runs=[active for active in self.runs if active.run.id not in gone],
            steps=[found for found in self.steps if found.run not in gone],
        )

    def of_run(self, run_id: str) -> list[ActiveStep]:
        return [found for found in self.steps if found.run == run_id]

    def of_step(self, step: StepAddress) -> list[ActiveStep]:
        """Everyone who has a step, including one that no registered run wants."""
        found = [one for one in self.steps if one.step.is_same(step)]
        if found or step.runs or step.output_path is None:
            return found
        jobs = [job for one in self.steps for job in one.jobs if step.is_of(job.tag)]
        gone = {active.run.id: active.run.driver_is_gone for active in self.runs}
        return list(_holders(step, live_lease(step.output_path), jobs, "", gone, self.now))


def awaited_by_drivers(runs: Iterable[ActiveRun], now: float) -> frozenset[tuple[str, str]]:
    """See `Survey.awaited`."""
    living = [active.awaited for active in runs if not is_dead_driver(active.run, now)]
    return frozenset[tuple[str, str]]().union(*living)


def is_dead_driver(run: RegisteredRun, now: float) -> bool:
    """Whether a run has lost its driver. A driver whose process we cannot see is dead after a long silence."""
    if run.driver_has_ended or can_be_seen(run.driver):
        return run.driver_is_gone  # One that is alive may be silent for long: suspended with Ctrl-Z, say.
    return now - run.seen > (_SILENT_HERE_SECONDS if is_from_before_a_restart(run.driver) else _SILENT_SECONDS)


def _is_dead(found: ActiveStep) -> bool:
    """A step without a job, whose worker has been silent for longer than any trouble of a store lasts."""
    silent = found.silent_seconds
    return found.job is None and silent is not None and silent > _SILENT_SECONDS


def look(queues: Queues, now: float) -> Survey:
    """See what is active now; `now` is the wall clock."""
    answer = queues.live_jobs()
    drivers = look_at_drivers(all_drivers(), answer, now)
    ended = {driver.record.id for driver in drivers if driver.is_over}
    known = [*registered_runs(), *filter(None, map(_run_elsewhere, drivers))]
    runs = [replace(run, driver_has_ended=run.id in ended) for run in known]
    search = _Search(runs, answer.jobs, now)
    active = [search.look_at(run) for run in runs]
    search.take_the_rest()
    awaited = awaited_by_drivers(active, now)
    steps = [
        replace(found, driver_is_gone=found.driver_is_gone and (found.step.key, found.step.place) not in awaited)
        for found in search.found
    ]
    return Survey(active, steps, now, answer.silent, drivers)


def _run_elsewhere(driver: ActiveDriver) -> RegisteredRun | None:
    """The run of a driver that is registered on another machine; None if there is none, or it cannot be told."""
    with contextlib.suppress(OSError, ValueError):
        return driver.record.registered_run() if driver.trouble is None else None
    return None


def live_lease(output_path: str) -> LeaseRecord | None:
    """Who works on a step; None if nobody does, or only a worker that is certainly dead."""
    try:
        record = peek(output_path)
    except CorruptLeaseError:
        return UNREADABLE
    if record is None or (record.owner is not None and record.owner.is_dead_here()):
        return None
    return record


def run_block(output_path: str) -> Mapping[str, Any]:
    """What the last worker of a step recorded about its attempt; nothing if there is none, or it cannot be told."""
    try:
        block: Mapping[str, Any] = (read_info(output_path) or {}).get("run", {})
    except (MarinRulesError, OSError):
        return {}
    return block


class _Search:
    """Goes through the runs. Each lease and each job is found once."""

    def __init__(self, runs: Iterable[RegisteredRun], jobs: Iterable[ClusterJob], now: float) -> None:
        self.found: list[ActiveStep] = []
        self._now = now
        self._gone = {run.id: run.driver_is_gone for run in runs}
        self._seen: set[str] = set()
        self._jobs: dict[tuple[str, str], list[ClusterJob]] = {}
        for job in jobs:
            if job.tag is not None and not job.tag.is_driver:
                self._jobs.setdefault((job.tag.step, job.tag.place), []).append(job)

    def look_at(self, run: RegisteredRun) -> ActiveRun:
        try:
            plan = read_plan(run.plan_path, run.digest)
            paths = [absolute(step.output_path, run.working_directory) for step in plan.steps]
            statuses = read_statuses(paths)
        except (MarinRulesError, OSError) as error:
            return ActiveRun(run, trouble=str(error))
        steps = []
        awaited = set()
        done = left = 0
        for planned, path in zip(plan.steps, paths, strict=True):
            tag = JobTag.of(run.id, planned.key, path)
            step = StepAddress(planned.name, planned.key, path, (run.id,) if planned.needed else (), tag.place)
            steps.append(step)
            if planned.needed:
                is_done = statuses[path] is Status.SUCCESS
                done, left = done + is_done, left + (not is_done)
                if not is_done:
                    awaited.add((tag.step, tag.place))
                jobs = self._jobs.pop((tag.step, tag.place), [])
                if jobs or (statuses[path] is Status.RUNNING and path not in self._seen):
                    lease = None if path in self._seen else live_lease(path)
                    self._seen.add(path)
                    self.found += _holders(step, lease, jobs, run.id, self._gone, self._now)
        return ActiveRun(run, steps, done, left, frozenset(awaited))

    def take_the_rest(self) -> None:
        """Jobs that no registered run has planned."""
        for (key, place), jobs in self._jobs.items():
            for job, elements in by_array(jobs):
                assert job.tag is not None
                step = StepAddress(name_in(key), key, None, place=place)
                is_gone = self._gone.get(job.tag.run, True)
                self.found.append(
                    ActiveStep(step, job.tag.run, self._now, job=job, driver_is_gone=is_gone, elements=elements)
                )


def _holders(
    step: StepAddress,
    lease: LeaseRecord | None,
    jobs: Iterable[ClusterJob],
    run_id: str,
    gone: Mapping[str, bool],
    now: float,
) -> Iterator[ActiveStep]:
    """Everyone who has a step or will have it: a worker, and jobs. `gone`: the registered runs that have lost their
    driver."""
    assert step.output_path is not None
    block = run_block(step.output_path)
    is_by_holder = lease is not None and block.get("worker_id") == lease.worker_id
    begun = _whole_number(block.get("attempt"))
    attempt = begun if is_by_holder else begun + 1
    recorded = recorded_job(block) if is_by_holder else None
    tasks = _task_counts(step.output_path) if "tasks" in block else None
    jobs = list(jobs)
    job_of_holder = _job_of(recorded, jobs) if is_by_holder else _first_with_machines(jobs)
    for job, elements in by_array(jobs):
        assert job.tag is not None
        is_holder = any(each is job_of_holder for each in elements or (job,))
        holder, lease = (lease, None) if is_holder else (None, lease)
        is_gone = gone.get(job.tag.run, True)
        # The attempt of an array is begun by its driver, before there is a job, and nobody has its lease.
        number = begun if elements else attempt
        yield ActiveStep(step, job.tag.run, now, holder, job, recorded, number, is_gone, elements, tasks)
    if lease is not None:
        worker_run = str(block["id"]) if is_by_holder and "id" in block else run_id
        # A run that is not registered may well have its driver: that of another user.
        is_gone = gone.get(worker_run, False)
        yield ActiveStep(step, worker_run, now, lease, None, recorded, attempt, is_gone, tasks=tasks)


def _job_of(recorded: RecordedJob | None, jobs: Iterable[ClusterJob]) -> ClusterJob | None:
    """The job that a worker says it is in; it may have lost its machine since."""
    if recorded is None:
        return None
    return next((job for job in jobs if (job.cluster, job.id) == (recorded.cluster, recorded.id)), None)


def _first_with_machines(jobs: Iterable[ClusterJob]) -> ClusterJob | None:
    """The job of a worker that has not yet said where it is."""
    return next((job for job in jobs if job.state is not JobState.WAITING), None)


def _task_counts(output_path: str) -> TaskCounts | None:
    try:
        return stored_counts(output_path)
    except (MarinRulesError, OSError):
        return None


def _whole_number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
