"""Ends steps and runs, and leaves them as an interrupt would: the status says CANCELLED, the lease is free.

Whoever runs a step is asked to end it (a signal, or scancel) and is waited for. What it could not write any more is
written here, under the step's lease. A step that is done is never touched.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from marin_rules.active.active_step import Step, UnderWay
from marin_rules.active.processes import LocalProcess, is_from_before_a_restart
from marin_rules.active.survey import Survey, live_lease, look
from marin_rules.clusters.slurm.commands import SlurmBusyError
from marin_rules.clusters.slurm.queue import cancel, our_jobs
from marin_rules.clusters.slurm.states import Meaning, meaning_of
from marin_rules.errors import MarinRulesError
from marin_rules.state.run_registry import KnownRun, forget
from marin_rules.state.status import Status, parse_status, status_bytes, status_path
from marin_rules.state.step_lease import open_lease
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import LeaseRecord, describe
from marin_rules.storage.leases.store import ChangedError

_POLL_SECONDS = 0.2
_SLURM_SECONDS = 1.0
"""Between two questions to Slurm, which has others to serve."""

_WORKER_SECONDS = 60.0
_DRIVER_SECONDS = 300.0
_JOB_SECONDS = 600.0
"""How long their ends may take. A worker kills its step after a few seconds; Slurm is as slow as its nodes."""

_PASSING_SECONDS = 3.0
"""How long another worker may have the lease, only to find that the step was stopped."""

_LATE_SECONDS = 15.0
"""How much later than at the end of its lifetime a lease may be seen to have expired."""

type Say = Callable[[str], None]


@dataclass(frozen=True)
class Stopped:
    """What became of a step that was to be stopped."""

    step: Step
    status: Status | None
    """None if only its worker knows its output path, or if somebody has it again."""

    holder: LeaseRecord | None = None
    """Whoever took the step up at once: another run that waited for it."""


def stop_step(survey: Survey, step: Step, say: Say) -> Stopped:
    """End whatever works on a step or is queued for it."""
    found = survey.of_step(step)
    _require_slurm(survey, found)
    return _settle(step, found, _end(found, say), say)


def stop_run(survey: Survey, run_id: str, say: Say) -> list[Stopped]:
    """End a run: its driver, and all of its steps that are under way, also those that outlived their driver."""
    run = next((view.run for view in survey.runs if view.run.id == run_id), None)
    found = survey.of_run(run_id)
    _require_slurm(survey, found)
    if run is not None:
        _interrupt(run, [one.job.id for one in found if one.job is not None], say)
        found += look().of_run(run_id)
    is_elsewhere = run is not None and not run.driver_is_gone and not is_from_before_a_restart(run.driver)
    if is_elsewhere:  # So are its steps, but for those in Slurm jobs.
        found = [one for one in found if one.job is not None]
    cancelled = _end(found, say)
    steps = {one.step.output_path or one.step.key: one.step for one in found}
    stopped = [
        _settle(step, [one for one in found if one.step.is_same(step)], cancelled, say) for step in steps.values()
    ]
    if run is not None:
        if is_elsewhere:
            raise MarinRulesError(
                f"run {run_id} is driven by process {run.driver.pid} on {run.driver.host}, which starts further steps;"
                f" run `marin-rules jobs stop {run_id}` there"
            )
        forget(run)
    return stopped


def _require_slurm(survey: Survey, found: Sequence[UnderWay]) -> None:
    """Refuse to go on without Slurm if one of its jobs is to be ended."""
    names = [one.step.name for one in found if one.recorded_job is not None]
    if survey.slurm_trouble is not None and names:
        raise MarinRulesError(f"{', '.join(names)} runs in a Slurm job, and Slurm does not answer: try again later")


# -- asking for the end --------------------------------------------------------------------------------------


def _interrupt(run: KnownRun, jobs: Sequence[str], say: Say) -> None:
    """Do to a driver of this machine what Ctrl-C in its terminal would do, and wait until it has ended.

    A driver that ignores Ctrl-C is asked otherwise, and then waits for its Slurm jobs instead of ending them.
    """
    driver = LocalProcess.find(run.driver)
    if driver is None:
        return
    with contextlib.closing(driver):
        number = driver.interruption
        driver.send(number)
        cancel(jobs)
        say(f"interrupted the driver of {run.id} (pid {driver.pid}), waiting for its end")
        told: set[int] = set()
        give_up = time.monotonic() + _DRIVER_SECONDS
        while not driver.has_ended(within=_POLL_SECONDS):
            # Jobs that it has just started, too: it waits for all of them.
            for pid in set(driver.company()) - told:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
                told.add(pid)
            if time.monotonic() > give_up:
                raise MarinRulesError(
                    f"the driver of {run.id} has not ended in {_DRIVER_SECONDS:.0f} s; look at its terminal, or end it"
                    f" with `kill -9 {driver.pid}` and stop the run again"
                )


def _end(found: Sequence[UnderWay], say: Say) -> set[str]:
    """End workers and jobs, all at the same time, and wait for them. Returns jobs that did not end by themselves."""
    workers = [(one, _worker(one)) for one in found if one.job is None]
    jobs = {one.job.id: one.step.name for one in found if one.job is not None}
    if jobs:
        cancel(list(jobs))
    for one, worker in workers:
        if worker is not None and _still_has(one):  # Its process may be at the next step by now.
            worker.send(signal.SIGTERM)
            say(f"stopping {one.step.name}: asked process {worker.pid} to end")
    for one, worker in workers:
        if worker is not None:
            _wait_for_worker(one, worker)
            worker.close()
    if not jobs:
        return set()
    say(f"stopping {', '.join(jobs.values())}: cancelled slurm job {', '.join(jobs)}")
    return _wait_for_jobs(set(jobs), say)


def _worker(one: UnderWay) -> LocalProcess | None:
    """The process that has a step, None if there is none to be asked; an error if it is alive on another machine."""
    owner = None if one.lease is None else one.lease.owner
    process = None if owner is None else LocalProcess.find(owner)
    if process is None and _still_has(one) and one.silent_seconds is None:
        where = "another machine" if owner is None else f"{owner.host} (pid {owner.pid}, user {owner.user})"
        raise MarinRulesError(
            f"step {one.step.name} runs on {where}, and not in a Slurm job of its own that you could cancel; run"
            f" `marin-rules jobs stop {one.step.key}` there"
        )
    return process


def _still_has(one: UnderWay) -> bool:
    """Whether the worker that was found has the step still."""
    assert one.step.output_path is not None
    lease = live_lease(one.step.output_path)
    return lease is not None and one.lease is not None and lease.worker_id == one.lease.worker_id


# -- waiting for it ------------------------------------------------------------------------------------------


def _wait_for_worker(one: UnderWay, worker: LocalProcess) -> None:
    give_up = time.monotonic() + _WORKER_SECONDS
    while _still_has(one):
        if time.monotonic() > give_up:
            raise MarinRulesError(
                f"process {worker.pid}, the worker of step {one.step.name}, has not ended in {_WORKER_SECONDS:.0f} s;"
                f" end it with `kill -9 {worker.pid}` and stop the step again"
            )
        worker.has_ended(within=_POLL_SECONDS)


def _wait_for_jobs(ids: set[str], say: Say) -> set[str]:
    """Wait for the end of jobs that were cancelled. Returns those that did not end by themselves."""
    give_up = time.monotonic() + _JOB_SECONDS
    silent = False
    while True:
        try:
            jobs = our_jobs()
            left = {number: jobs[number].state for number in ids if number in jobs and jobs[number].is_live}
            if not left:
                return {
                    number
                    for number in ids
                    if number not in jobs or meaning_of(jobs[number].state) is Meaning.CANCELLED
                }
        except SlurmBusyError as error:
            if not silent:
                say(f"waiting for slurm to tell of the jobs: {error}")
            silent, left = True, dict.fromkeys(ids, "no answer")
        if time.monotonic() > give_up:
            states = ", ".join(f"slurm job {number} ({state})" for number, state in left.items())
            raise MarinRulesError(f"not ended in {_JOB_SECONDS:.0f} s: {states}; stop the step again later")
        time.sleep(_SLURM_SECONDS)


# -- what is left to be written ------------------------------------------------------------------------------


def _settle(step: Step, found: Sequence[UnderWay], cancelled: set[str], say: Say) -> Stopped:
    """See to it that the lease of a step is free and that its status tells of its end."""
    if step.output_path is None:
        return Stopped(step, None)
    lease = open_lease(step.output_path, Owner.current())
    holder = _take_over(lease, step, {one.lease.worker_id for one in found if one.lease is not None}, say)
    if holder is not None:
        return Stopped(step, None, holder)
    # A job that was cancelled may have lost its processes before its worker knew why, and that looks like a failure.
    may_have_failed = any(one.lease is not None and (one.job is None or one.job.id not in cancelled) for one in found)
    try:
        return Stopped(step, _mark(lease, step.output_path, may_have_failed=may_have_failed))
    except LeaseLostError as lost:
        return Stopped(step, None, lost.holder)
    finally:
        lease.release()


def _take_over(lease: Lease, step: Step, stopped: set[str], say: Say) -> LeaseRecord | None:
    """Take the lease that a stopped worker has left; None if it is ours, else who was quicker."""
    give_up: float | None = None
    passed_by = time.monotonic() + _PASSING_SECONDS
    while (holder := lease.try_acquire()) is not None:
        if holder.worker_id not in stopped:
            if time.monotonic() > passed_by:
                return holder
            time.sleep(_POLL_SECONDS)
            continue
        if give_up is None:
            give_up = time.monotonic() + holder.lifetime + _LATE_SECONDS
            say(
                f"stopping {step.name}: its worker could not give its lease back, waiting for it to expire"
                f" (at most {holder.lifetime:.0f} s)"
            )
        if time.monotonic() > give_up:
            raise MarinRulesError(f"step {step.name} is not stopped: held by {describe(holder, time.time())}")
        time.sleep(_POLL_SECONDS)
    return None


def _mark(lease: Lease, output_path: str, *, may_have_failed: bool) -> Status | None:
    """Write CANCELLED, unless the step has come to an end of its own; returns what it says then."""
    path = status_path(output_path)
    while True:
        data = lease.read(path)
        status = None if data is None else parse_status(data, path)
        # The failure of a step that was queued is that of an earlier attempt.
        if status in (Status.SUCCESS, Status.CANCELLED) or (status is Status.FAILED and may_have_failed):
            return status
        with contextlib.suppress(ChangedError):
            lease.commit(path, status_bytes(Status.CANCELLED, output_path))
            return Status.CANCELLED
