"""Puts the job of a step into a cluster's queue: once, although several drivers may want it.

An existing job for the same step, from a driver that was killed, is taken over instead of submitting another one. A
step that is active elsewhere is waited for here, not on a machine of the cluster. Only one driver at a time looks for a
step's job and submits one, so that two of them submit it once. The cluster may be silent for a while, or refuse a job
for passing reasons: neither leads to an immediate conclusion.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from marin_rules.clusters.patience import Refusals, pause_seconds
from marin_rules.clusters.protocol import (
    BusyError,
    ClusterError,
    ClusterJob,
    FullError,
    JobQueue,
    JobRequest,
    JobState,
    JobTag,
    RefusedError,
    live_jobs_of,
)
from marin_rules.engine.cluster_arrays import ArrayTakeUp
from marin_rules.engine.cluster_notices import Notices
from marin_rules.engine.cluster_tracking import ArrayTrack, Clock, OwnJobs, Track, is_ours_to_cancel
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.run_registry import find_run
from marin_rules.state.status import CorruptStatusError, Status, read_status
from marin_rules.state.step_lease import open_lease
from marin_rules.state.submission_turn import open_turn
from marin_rules.storage.leases.held import held
from marin_rules.storage.leases.lease import LeaseLostError
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import describe
from marin_rules.urls import is_url
from marin_rules.worker.array_step import Begun, begin_array

_ENDING_SECONDS = 1.0
"""The pause between two looks at a job that is about to end, or to be requeued."""

LOG = "cluster_log"
"""Where the log of a job is that can be read here, among what Snakemake carries along with it."""


type RequestFor = Callable[[Any, FrozenStep | None, JobTag | None, Sequence[int] | None], JobRequest]
"""Makes the request for one of Snakemake's jobs: for its step, with this tag; for these tasks of it, if it has any."""


class TakeUp:
    """For the jobs of one run. Called in threads."""

    def __init__(
        self,
        plan: FrozenPlan,
        queue: JobQueue,
        *,
        ours: OwnJobs,
        notices: Notices,
        request_for: RequestFor,
        describe_job: Callable[[JobRequest], str],
        log_of: Callable[[Any, FrozenStep | None], str | None],
        most_interruptions: int,
        patience: float,
        clock: Clock,
    ) -> None:
        self._plan = plan
        self._queue = queue
        self._ours = ours
        self._notices = notices
        self._request_for = request_for
        self._describe_job = describe_job
        self._log_of = log_of
        self._patience = patience
        self._clock = clock
        self._arrays = ArrayTakeUp(
            plan,
            queue,
            ours=ours,
            notices=notices,
            describe_job=describe_job,
            is_ours=self._is_ours,
            most_interruptions=most_interruptions,
        )

    def __call__(self, job: Any, track: Track) -> SubmittedJobInfo | None:
        """Find a job that already does the step, or wait for another run that does it, or submit one; None if the run
        is over.

        What it returns without an id is still to be submitted, and the watch over jobs knows when.
        """
        track.foreign_job = track.not_before = None
        tries = 0
        while not self._ours.closed.is_set():
            try:
                return self._try(job, track)
            except FullError as error:
                return self._wait_for_room(error, job, track)
            except BusyError as error:
                # A submission without an answer may have been accepted: the next look at the queue finds it.
                self._notices.tell(f"wait   {track.name}: {error}; will try again")
                tries += 1
                self._clock.wait(self._ours.closed, pause_seconds(tries))
            except LeaseLostError:
                continue  # We were delayed for so long that another driver may have had its turn.
            except RefusedError:
                raise
            except ClusterError as error:
                return self._wait_after(error, job, track)
        if track.may_be_queued and track.step is not None:
            self._end_unanswered(track, track.step)
        return None

    def _try(self, job: Any, track: Track) -> SubmittedJobInfo | None:
        """One attempt; None if the run has ended."""
        step = track.step
        if step is None:
            info = self._submit(job, track, None)
        else:
            turn = open_turn(step.output_path)
            if turn.try_acquire() is not None:
                track.turn = turn
                return _unsubmitted(job)
            with held(turn) as require_turn:
                info = self._in_turn(job, track, step, require_turn)
        if info is not None:
            track.refusals = None
        return info

    def _in_turn(
        self, job: Any, track: Track, step: FrozenStep, require_turn: Callable[[], None]
    ) -> SubmittedJobInfo | None:
        """The same while no other driver does so."""
        tag = self._tag(step)
        jobs = self._queue.jobs().values()
        if step.tasks is not None:
            return self._take_up_tasks(job, track, step, tag, jobs, require_turn)
        found = next(iter(live_jobs_of(tag, jobs)), None)
        track.may_be_queued = False
        if found is not None and found.state is JobState.ENDING:
            # Not waited for here: on a dead node that may take hours, and other jobs need submitting.
            track.not_before = self._clock.now() + _ENDING_SECONDS
            return _unsubmitted(job)
        if found is not None:
            return self._adopt(job, track, found)
        lease = open_lease(step.output_path, Owner.current())
        holder = lease.try_acquire()
        if holder is not None:
            track.lease = lease
            self._notices.tell(f"wait   {step.name}: held by {describe(holder, time.time())}")
            return _unsubmitted(job)
        lease.release()
        if step.index not in self._plan.forced and status_of(step) is Status.SUCCESS:
            track.history = track.history.of_next_job("")
            return _unsubmitted(job)  # Another driver's job has done it meanwhile, as the next look will show.
        require_turn()
        return self._submit(job, track, tag)

    def _take_up_tasks(
        self,
        job: Any,
        track: Track,
        step: FrozenStep,
        tag: JobTag,
        jobs: Iterable[ClusterJob],
        require_turn: Callable[[], None],
    ) -> SubmittedJobInfo | None:
        """Put all tasks that nobody is working on into the queue; None if the run has ended."""
        track.may_be_queued = False
        begun = begin_array(self._plan, step)
        if begun is None:
            track.history = track.history.of_next_job("")
            return _unsubmitted(job)  # Another driver has done it meanwhile, as the next look will show.
        if not isinstance(begun, Begun):
            track.lease = open_lease(step.output_path, Owner.current())
            self._notices.tell(f"wait   {step.name}: held by {describe(begun, time.time())}")
            return _unsubmitted(job)
        array = track.array
        if array is None or array.round != begun.round:
            array = track.array = ArrayTrack(begun.round)
        track.foreign_job = self._arrays.find(array, step, jobs)
        track.may_be_queued = True
        is_wanted = self._arrays.submit(array, step, tag, partial(self._request_for, job, step), require_turn)
        track.may_be_queued = False
        if not is_wanted:
            for number in array.arrays:
                self._end(number)  # The run was cancelled in this very moment.
            return None
        return SubmittedJobInfo(job, external_jobid=next(iter(sorted(array.arrays)), None), aux={})

    def _submit(self, job: Any, track: Track, tag: JobTag | None) -> SubmittedJobInfo | None:
        request = self._request_for(job, track.step, tag, None)
        track.may_be_queued = True
        number = self._queue.submit(request)
        track.may_be_queued = False
        if not self._ours.add(number):
            self._end(number)  # The run was cancelled in this very moment.
            return None
        track.history = track.history.of_next_job(number)
        name = self._queue.cluster
        self._notices.tell(f"queue  {track.name}: {name} job {number}, {self._describe_job(request)}")
        return self._info(job, track, number)

    def _end_unanswered(self, track: Track, step: FrozenStep) -> None:
        """The run was cancelled before it was known whether the step's job had been accepted: look for it once."""
        tag = self._tag(step)
        try:
            found = live_jobs_of(tag, self._queue.jobs().values())
        except ClusterError as error:
            self._notices.tell(f"left   {track.name}: its job may be in the queue anyway: {error}")
            return
        for number in sorted({job.array or job.id for job in found if job.tag and job.tag.run == self._plan.run.id}):
            self._end(number)

    def _end(self, number: str) -> None:
        queue = self._queue
        try:
            queue.cancel([number])
            self._notices.tell(f"cancelled {queue.cluster} jobs {number}")
        except ClusterError as error:
            self._notices.tell(f"could not cancel the jobs: {error}. Do it by hand: {queue.cancel_command([number])}")

    def _tag(self, step: FrozenStep) -> JobTag:
        run = self._plan.run
        return JobTag.of(run.id, step.key, run.absolute(step.output_path))

    def _is_ours(self, tag: JobTag) -> bool:
        """Whether a job that was found should end along with this run."""
        run = find_run(tag.run)
        gone = None if run is None else run.driver_is_gone
        return is_ours_to_cancel(tag.run, self._plan.run.id, gone)

    def _adopt(self, job: Any, track: Track, found: ClusterJob) -> SubmittedJobInfo:
        """Continue with a job that another driver has submitted; it becomes ours if that driver is certainly gone."""
        assert found.tag is not None
        is_ours = self._is_ours(found.tag)
        if is_ours:
            self._ours.add(found.id)
        else:
            track.foreign_job = found
        track.history = track.history.of_next_job(found.id, restarts=found.restarts, is_ours=is_ours)
        self._notices.tell(
            f"found  {track.name}: {found.cluster} job {found.id} of {found.tag.run} already has this step"
        )
        return self._info(job, track, found.id)

    def _wait_after(self, error: ClusterError, job: Any, track: Track) -> SubmittedJobInfo:
        """Retry later what was refused for a reason that may pass; raises when patience runs out."""
        patience = self._patience
        refusals = Refusals.after(track.refusals, self._clock.now(), patience)
        if refusals is None:
            raise ClusterError(f"{error}; tried again for {patience:g} s") from error
        track.refusals, track.not_before = refusals, refusals.not_before
        self._notices.tell_once(f"wait   {track.name}: {error}; will try again for {patience:g} s")
        return _unsubmitted(job)

    def _wait_for_room(self, error: FullError, job: Any, track: Track) -> SubmittedJobInfo:
        """Retry later, for as long as it takes. Not in this thread: there may be room for other jobs."""
        track.may_be_queued = False
        track.refusals = Refusals.without_end(track.refusals, self._clock.now())
        track.not_before = track.refusals.not_before
        self._notices.tell_once(f"wait   {track.name}: {error}; will try again")
        return _unsubmitted(job)

    def _info(self, job: Any, track: Track, number: str) -> SubmittedJobInfo:
        log = self._log_of(job, track.step)
        place = None if log is None else self._queue.log_of(log, number)
        aux = {} if place is None or is_url(place) else {LOG: place}
        return SubmittedJobInfo(job, external_jobid=number, aux=aux)


def _unsubmitted(job: Any) -> SubmittedJobInfo:
    return SubmittedJobInfo(job, aux={})


def status_of(step: FrozenStep) -> Status | None:
    try:
        return read_status(step.output_path)
    except (OSError, CorruptStatusError):
        return None
