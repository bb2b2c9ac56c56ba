"""Looks at the jobs that a run has on a cluster, and does what the policy decides.

All jobs are queried at once. Trouble with one of them must not end the watch over the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from marin_rules.clusters.policy import (
    Absence,
    Again,
    Fail,
    Observation,
    Succeed,
    TaskWord,
    Wait,
    decide,
)
from marin_rules.clusters.protocol import ClusterError, ClusterJob, JobQueue, JobState
from marin_rules.engine.cluster_arrays import ArrayWatch, Progress
from marin_rules.engine.cluster_notices import Notices
from marin_rules.engine.cluster_takeup import LOG, status_of
from marin_rules.engine.cluster_tracking import ArrayTrack, Clock, OwnJobs, Track
from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.info import version_clash
from marin_rules.state.progress import made_progress, was_stopped_in
from marin_rules.state.status import Status
from marin_rules.storage.leases.held import is_free
from marin_rules.storage.leases.lease import Lease


class Reports(Protocol):
    """Is notified of the end of a job."""

    def succeeded(self, info: SubmittedJobInfo) -> None: ...

    def failed(self, info: SubmittedJobInfo, reason: str, *, may_retry: bool) -> None: ...

    def submit_again(self, job: Any) -> None: ...

    def remove_log(self, log: str) -> None:
        """Of a job that has succeeded."""

    def explain(self, job: ClusterJob | Absence, log: str | None) -> str:
        """What more there is to say about a job that left no record of its end."""


class Watch:
    """Over the jobs of one run."""

    def __init__(
        self, plan: FrozenPlan, queue: JobQueue, *, ours: OwnJobs, notices: Notices, reports: Reports, clock: Clock
    ) -> None:
        self._plan = plan
        self._queue = queue
        self._ours = ours
        self._notices = notices
        self._reports = reports
        self._clock = clock
        self._silent = False
        self._arrays = ArrayWatch(
            plan, queue, notices=notices, explain=reports.explain, remove_log=reports.remove_log, clock=clock
        )

    def look(self, jobs: Sequence[tuple[SubmittedJobInfo, Track]]) -> Iterator[SubmittedJobInfo]:
        """Those that still have to be waited for; the others are reported."""
        answers = self._ask([number for info, track in jobs for number in _ids(info, track)])
        for info, track in jobs:
            try:
                live = self._has_to_be_waited_for(info, track, answers)
            except Exception as error:
                what = f"{self._queue.cluster} job {info.external_jobid}"
                self._notices.tell_once(f"could not look at {what}, will try again: {error!r}")
                live = True
            if live:
                yield info
            else:
                for number in _ids(info, track):
                    self._ours.discard(number)

    def _ask(self, ids: Sequence[str]) -> Mapping[str, ClusterJob] | None:
        """The jobs that the cluster knows; None if it does not answer."""
        if not ids:
            return {}
        try:
            jobs = self._queue.look(ids)
        except Exception as error:  # Whatever it is, it must not end the watch.
            if not self._silent:
                self._notices.tell(f"{self._queue.cluster} does not answer, its jobs continue: {error}")
            self._silent = True
            return None
        if self._silent:
            self._notices.tell(f"{self._queue.cluster} answers again")
        self._silent = False
        return jobs

    def _has_to_be_waited_for(
        self, info: SubmittedJobInfo, track: Track, answers: Mapping[str, ClusterJob] | None
    ) -> bool:
        if track.turn is not None:  # Another driver is about to submit the step's job.
            return self._look_at_lease(info, track, track.turn)
        if track.not_before is not None:
            return self._look_at_clock(info, track.not_before)
        if track.lease is not None:
            return self._look_at_lease(info, track, track.lease)
        if track.array is not None and track.step is not None:
            return self._look_at_tasks(info, track, track.step, track.array, answers)
        absence = Absence.SILENT if answers is None else Absence.MISSING
        return self._judge(info, track, (answers or {}).get(info.external_jobid or "", absence))

    # -- what has no job yet ---------------------------------------------------------------------------------

    def _look_at_clock(self, info: SubmittedJobInfo, not_before: float) -> bool:
        """The cluster did not accept the step's job, or is about to end an older one: try again when it is time."""
        if self._clock.now() < not_before:
            return True
        self._reports.submit_again(info.job)
        return False

    def _look_at_lease(self, info: SubmittedJobInfo, track: Track, lease: Lease) -> bool:
        """Another run is working on the step, or about to submit its job: done, still running, or free for us."""
        if not is_free(lease):
            return True
        was_at_it = lease is track.lease
        track.turn = track.lease = None
        if was_at_it and track.step is not None and status_of(track.step) is Status.SUCCESS:
            self._accept(info, track.step)
        else:
            self._reports.submit_again(info.job)
        return False

    def end_arrays(self, tracks: Iterable[Track]) -> None:
        """The run is cancelled, and with it the tasks of array steps: no worker has them as a whole to say so."""
        for track in tracks:
            if track.step is not None and track.array is not None and track.foreign_job is None:
                with contextlib.suppress(MarinRulesError, OSError):
                    self._arrays.end(track.array, track.step, Status.CANCELLED)

    # -- what has one for each task --------------------------------------------------------------------------

    def _look_at_tasks(
        self,
        info: SubmittedJobInfo,
        track: Track,
        step: FrozenStep,
        array: ArrayTrack,
        answers: Mapping[str, ClusterJob] | None,
    ) -> bool:
        progress = self._arrays.look(array, step, answers)
        if progress is Progress.WAIT:
            return True
        if progress is Progress.SUBMIT:
            self._reports.submit_again(info.job)
            return False
        has_succeeded = progress is Progress.SUCCESS
        is_written = self._arrays.end(array, step, Status.SUCCESS if has_succeeded else Status.FAILED)
        if not is_written and status_of(step) is not Status.SUCCESS:
            return True  # Another driver is about to record the outcome.
        track.array = track.foreign_job = None
        for number in array.arrays:
            self._ours.discard(number)
        if has_succeeded or not is_written:
            self._accept(info, step)
        else:
            self._reports.failed(info, self._arrays.reason(array, step), may_retry=array.may_retry)
        return False

    # -- what has one ----------------------------------------------------------------------------------------

    def _judge(self, info: SubmittedJobInfo, track: Track, job: ClusterJob | Absence) -> bool:
        observation = self._observe(track, job)
        decision = decide(track.history, observation)
        track.history = decision.history
        for text in decision.notices:
            self._notices.tell(text)
        match decision:
            case Wait():
                if isinstance(job, ClusterJob) and track.step is not None:
                    self._tell_of_wait(job, track.name)
                return True
            case Succeed(by_this_job=by_this_job):
                track.foreign_job = None
                if by_this_job or track.step is None:
                    self._reports.succeeded(info)
                else:
                    self._accept(info, track.step)
            case Again():
                track.foreign_job = None
                self._reports.submit_again(info.job)
            case Fail():
                self._fail(info, track, decision, observation)
        return False

    def _tell_of_wait(self, job: ClusterJob, name: str) -> None:
        if job.state is JobState.WAITING:
            self._notices.tell_why_it_waits(name, job, self._queue.advice(job))
        elif job.state is JobState.RUNNING:
            self._notices.forget_wait(job)

    def _observe(self, track: Track, job: ClusterJob | Absence) -> Observation:
        step, now = track.step, self._clock.now()
        if step is None or (isinstance(job, ClusterJob) and job.is_live):
            return Observation(job, now)
        if isinstance(job, Absence) or job.state is JobState.DONE:
            return Observation(job, now, _word_of(step, job))
        return Observation(job, now, _word_of(step, job), _made_progress(step))

    def _accept(self, info: SubmittedJobInfo, step: FrozenStep) -> None:
        """A step that somebody else has finished; it may have been another version on the same path."""
        clash = version_clash(self._plan, step)
        if clash is None:
            self._reports.succeeded(info)
        else:
            self._reports.failed(info, clash, may_retry=False)

    def _fail(self, info: SubmittedJobInfo, track: Track, decision: Fail, observation: Observation) -> None:
        track.foreign_job = None
        if decision.job_lives:
            with contextlib.suppress(ClusterError):
                self._queue.cancel([track.history.job])
        reason = decision.reason
        if observation.task is TaskWord.NOTHING and decision.may_retry:
            reason += self._reports.explain(observation.job, (info.aux or {}).get(LOG))
        self._reports.failed(info, reason, may_retry=decision.may_retry)


def _ids(info: SubmittedJobInfo, track: Track) -> list[str]:
    """The jobs of the cluster that one of Snakemake's jobs has."""
    if track.array is not None:
        return list(track.array.jobs.values())
    return [] if info.external_jobid is None else [info.external_jobid]


def _word_of(step: FrozenStep, job: ClusterJob | Absence) -> TaskWord:
    status = status_of(step)
    if status is Status.CANCELLED and isinstance(job, ClusterJob):
        with contextlib.suppress(Exception):
            return TaskWord.STOPPED if was_stopped_in(step.output_path, job.id) else TaskWord.NOTHING
    words: dict[Status | None, TaskWord] = {Status.SUCCESS: TaskWord.DONE, Status.FAILED: TaskWord.FAILED}
    return words.get(status, TaskWord.NOTHING)


def _made_progress(step: FrozenStep) -> bool:
    with contextlib.suppress(Exception):
        return made_progress(step.output_path)
    return False
