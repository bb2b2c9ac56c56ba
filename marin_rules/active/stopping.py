"""Stops steps and runs, and leaves them as an interrupt would: the status says CANCELLED, the lease is free.

Whatever runs a step is asked to end it (by a signal to a process, or the cancellation of a job) and waited for; see
`ending`. What it could no longer write is written here, under the step's lease; see `settling`. A step that is done is
never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from marin_rules.active.active_step import ActiveStep, StepAddress
from marin_rules.active.clock import Clock, SystemClock
from marin_rules.active.ending import Ending
from marin_rules.active.processes import LocalProcess, Process, is_from_before_a_restart
from marin_rules.active.queues import Queues, name_of
from marin_rules.active.settling import Settling, Stopped, open_own_lease
from marin_rules.active.survey import Survey, look
from marin_rules.errors import MarinRulesError
from marin_rules.state.run_registry import forget
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.owner import Owner

type Say = Callable[[str], None]


class Stopper:
    """Stops what a survey has found."""

    def __init__(
        self,
        queues: Queues,
        say: Say,
        *,
        clock: Clock | None = None,
        find_process: Callable[[Owner], Process | None] = LocalProcess.find,
        open_lease: Callable[[str], Lease] = open_own_lease,
    ) -> None:
        self._queues = queues
        self._clock = clock or SystemClock()
        self._ending = Ending(queues, say, self._clock, find_process)
        self._settling = Settling(say, self._clock, open_lease)

    def stop_step(self, survey: Survey, step: StepAddress) -> Stopped:
        """End whatever works on a step or is queued for it."""
        found = survey.of_step(step)
        self._require_answers(survey, found)
        return self._settling.settle(step, found, self._ending.end(found))

    def stop_run(self, survey: Survey, run_id: str) -> list[Stopped]:
        """End a run: its driver, and all of its active steps, including those that outlived their driver."""
        run = next((active.run for active in survey.runs if active.run.id == run_id), None)
        found = survey.of_run(run_id)
        self._require_answers(survey, found)
        driver_was_gone = run is not None and run.driver_is_gone
        if run is not None:
            self._ending.interrupt(run, [name_of(job) for one in found for job in one.jobs])
            found = _distinct([*found, *look(self._queues, self._clock.time()).of_run(run_id)])
        is_elsewhere = run is not None and not run.driver_is_gone and not is_from_before_a_restart(run.driver)
        if is_elsewhere:  # So are its steps, except those in jobs of a cluster.
            found = [one for one in found if one.job is not None]
        cancelled = self._ending.end(found)
        steps = {one.step.where: one.step for one in found}
        stopped = [
            self._settling.settle(step, [one for one in found if one.step.is_same(step)], cancelled)
            for step in steps.values()
        ]
        if run is not None:
            if is_elsewhere:
                raise MarinRulesError(
                    f"run {run_id} is driven by process {run.driver.pid} on {run.driver.host}, which starts further"
                    f" steps; run `marin-rules jobs stop {run_id}` there"
                )
            if driver_was_gone and survey.silent_clusters:  # Nobody has cancelled what is queued there.
                titles = " and ".join(map(self._queues.title, survey.silent_clusters))
                raise MarinRulesError(
                    f"run {run_id} has lost its driver and may have jobs on {titles}, which does not answer: run"
                    f" `marin-rules jobs stop {run_id}` again later"
                )
            forget(run)
        return stopped

    def _require_answers(self, survey: Survey, found: Sequence[ActiveStep]) -> None:
        """Refuse to continue without a cluster if one of its jobs is to be ended."""
        for cluster in survey.silent_clusters:
            jobs = [one for one in found if one.recorded_job is not None and one.recorded_job.cluster == cluster]
            if jobs:
                names, title = ", ".join(one.step.name for one in jobs), self._queues.title(cluster)
                raise MarinRulesError(f"{names} runs in a {title} job, and {title} does not answer: try again later")


def _distinct(found: Sequence[ActiveStep]) -> list[ActiveStep]:
    """What two surveys have found, each worker and each job once: nothing is asked to end twice.

    The first survey wins: by the second the run may no longer be recorded, and only the tags of its jobs are left.
    """
    by_holder: dict[Hashable, ActiveStep] = {}
    for one in found:
        worker = None if one.lease is None else one.lease.worker_id
        by_holder.setdefault((one.step.where, worker) if one.job is None else name_of(one.job), one)
    return list(by_holder.values())
