"""Asks drivers, workers and jobs to end, all at the same time, and waits until they have."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Sequence

from marin_rules.active.active_step import ActiveStep
from marin_rules.active.clock import Clock
from marin_rules.active.processes import Process
from marin_rules.active.queues import JobName, Queues, job_words, name_of
from marin_rules.active.survey import live_lease
from marin_rules.clusters.protocol import JobState
from marin_rules.errors import MarinRulesError
from marin_rules.state.run_registry import RegisteredRun
from marin_rules.storage.leases.owner import Owner

_POLL_SECONDS = 0.2
_CLUSTER_SECONDS = 1.0
"""The pause between two queries to a cluster, which has others to serve."""

_WORKER_SECONDS = 60.0
_DRIVER_SECONDS = 300.0
_JOB_SECONDS = 600.0
"""How long they may take to end. A worker kills its step after a few seconds; a cluster is as slow as its nodes."""

_MOST_NAMED = 10
"""Of jobs that do not end: an array may have thousands."""


class Ending:
    """Brings processes and jobs to their ends."""

    def __init__(
        self,
        queues: Queues,
        say: Callable[[str], None],
        clock: Clock,
        find_process: Callable[[Owner], Process | None],
    ) -> None:
        self._queues = queues
        self._say = say
        self._clock = clock
        self._find_process = find_process

    def interrupt(self, run: RegisteredRun, jobs: Collection[JobName]) -> None:
        """Do to a driver of this machine what Ctrl-C in its terminal would do, and wait until it has ended.

        A driver that ignores Ctrl-C gets another signal, and then waits for its jobs instead of ending them.
        """
        driver = self._find_process(run.driver)
        if driver is None:
            return
        with contextlib.closing(driver):
            number = driver.interruption
            driver.send(number)
            self._queues.cancel(jobs)
            self._say(f"interrupted the driver of {run.id} (pid {driver.pid}), waiting for its end")
            told: set[int] = set()
            give_up = self._clock.monotonic() + _DRIVER_SECONDS
            while not driver.has_ended(within=_POLL_SECONDS):
                # Including jobs that it has just started: it waits for all of them.
                for pid in set(driver.company()) - told:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
                    told.add(pid)
                if self._clock.monotonic() > give_up:
                    raise MarinRulesError(
                        f"the driver of {run.id} has not ended in {_DRIVER_SECONDS:.0f} s; look at its terminal, or end"
                        f" it with `kill -9 {driver.pid}` and stop the run again"
                    )

    def end(self, found: Sequence[ActiveStep]) -> set[JobName]:
        """End workers and jobs, and wait for them. Returns jobs that did not end on their own, an array as one."""
        jobs = [name_of(job) for one in found for job in one.jobs]
        with contextlib.ExitStack() as opened:
            workers: list[tuple[ActiveStep, Process]] = []
            for one in found:
                worker = self._worker(one) if one.job is None else None
                if worker is not None:
                    workers.append((one, opened.enter_context(contextlib.closing(worker))))
            self._queues.cancel(jobs)
            for one, worker in workers:
                if _still_has(one):  # Its process may already be at the next step.
                    worker.send(signal.SIGTERM)
                    self._say(f"stopping {one.step.name}: asked process {worker.pid} to end")
            for one, worker in workers:
                self._wait_for_worker(one, worker)
        if not jobs:
            return set()
        in_jobs = {name_of(one.job): one for one in found if one.job is not None}
        names = ", ".join(one.step.name for one in in_jobs.values())
        self._say(f"stopping {names}: cancelled {job_words(in_jobs)}")
        cancelled = self._wait_for_jobs(jobs)
        return {name for name, one in in_jobs.items() if any(name_of(job) in cancelled for job in one.jobs)}

    def _worker(self, one: ActiveStep) -> Process | None:
        """The process that has a step; None if there is none to ask; an error if it is alive but out of our reach."""
        owner = None if one.lease is None else one.lease.owner
        process = None if owner is None else self._find_process(owner)
        if process is None and _still_has(one) and one.silent_seconds is None:
            raise MarinRulesError(self._why_out_of_reach(one, owner))
        return process

    def _why_out_of_reach(self, one: ActiveStep, owner: Owner | None) -> str:
        where = "another machine" if owner is None else f"{owner.host} (pid {owner.pid}, user {owner.user})"
        command = f"`marin-rules jobs stop {one.step.key}`"
        job = one.recorded_job
        if job is None:
            return (
                f"step {one.step.name} runs on {where}, and not in a job of its own that you could cancel; run"
                f" {command} there"
            )
        if not self._queues.can_ask(job.cluster):
            return (
                f"step {one.step.name} runs on {where} in {job.cluster} job {job.id}, and this machine cannot ask"
                f" {job.cluster} to cancel it; run {command} on one that can"
            )
        return (
            f"step {one.step.name} runs on {where} in {job.cluster} job {job.id}, which is not among your jobs; whoever"
            f" started it can end it with {command}"
        )

    def _wait_for_worker(self, one: ActiveStep, worker: Process) -> None:
        give_up = self._clock.monotonic() + _WORKER_SECONDS
        while _still_has(one) and not worker.has_ended(within=_POLL_SECONDS):
            if self._clock.monotonic() > give_up:
                raise MarinRulesError(
                    f"process {worker.pid}, the worker of step {one.step.name}, has not ended in"
                    f" {_WORKER_SECONDS:.0f} s; end it with `kill -9 {worker.pid}` and stop the step again"
                )

    def _wait_for_jobs(self, names: Collection[JobName]) -> set[JobName]:
        """Wait for the end of jobs that were cancelled. Returns those that did not end on their own."""
        give_up = self._clock.monotonic() + _JOB_SECONDS
        left = dict.fromkeys(names, "no answer")
        cancelled: set[JobName] = set()
        silent: set[str] = set()
        while True:
            found, busy = self._queues.look(left)
            for cluster in busy.keys() - silent:
                self._say(f"waiting for {cluster} to report the jobs: {busy[cluster]}")
            silent |= busy.keys()
            for name in [name for name in left if name[0] not in busy]:
                job = found.get(name)
                if job is not None and job.is_live:
                    left[name] = job.word
                    continue
                del left[name]
                if job is None or job.state is JobState.CANCELLED:
                    cancelled.add(name)
            if not left:
                return cancelled
            if self._clock.monotonic() > give_up:
                states = ", ".join(f"{job_words([name])} ({state})" for name, state in [*left.items()][:_MOST_NAMED])
                states += f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
                raise MarinRulesError(f"not ended in {_JOB_SECONDS:.0f} s: {states}; stop the step again later")
            self._clock.sleep(_CLUSTER_SECONDS)


def _still_has(one: ActiveStep) -> bool:
    """Whether the worker that was found still has the step."""
    assert one.step.output_path is not None
    lease = live_lease(one.step.output_path)
    return lease is not None and one.lease is not None and lease.worker_id == one.lease.worker_id
