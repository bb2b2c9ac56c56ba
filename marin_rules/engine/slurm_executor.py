"""`--executor marin-slurm`: steps as Slurm jobs. A subclass of Snakemake's own Slurm executor.

What the stock executor keeps doing: its settings, threads for submissions, log folders, and everything for jobs that
are no single steps (groups, rules with `mpi`).

What differs for steps, and why:

- The job runs the step's worker itself. The stock job starts Snakemake twice before it comes to the step; here only
  hand-written rules need that.
- The queue is looked at twice a second at first, then more and more seldom, instead of every 40 seconds and later.
- A job whose machine was taken away (preempted without requeue, node failed, or a time limit that hit a step which
  makes progress) is submitted again. That costs no retry; how often it may happen has a bound of its own. The stock
  executor waits for ever for a job that ends PREEMPTED.
- A job that a person cancelled is not tried again.
- A job for the same step that is there already, from a driver that was killed, is taken up instead of submitting
  another one. A step that is under way elsewhere is waited for here, not on a node.
- Only one driver at a time looks for a step's job and submits one, so that two of them submit it once.
- Slurm may be silent for a while, or refuse a job for reasons that pass: nothing is concluded from that at once.
- A job that may wait for ever is reported with Slurm's reason.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from snakemake_executor_plugin_slurm import Executor as StockExecutor
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from marin_rules.clusters.patience import Refusals, pause_seconds
from marin_rules.clusters.protocol import JOB, JobRequest
from marin_rules.clusters.slurm.commands import SlurmBusyError, SlurmError, SlurmRefusedError
from marin_rules.clusters.slurm.queue import SlurmJob, Tag, cancel, forgotten_jobs, live_job_of, our_jobs
from marin_rules.clusters.slurm.site import Queue
from marin_rules.clusters.slurm.states import Meaning, meaning_of
from marin_rules.clusters.slurm.submission import submit
from marin_rules.engine import plan_in_process
from marin_rules.engine.job_command import job_command
from marin_rules.engine.job_resources import slurm_words
from marin_rules.engine.slurm_job import job_resources
from marin_rules.engine.slurm_notices import Notices, how_it_ended
from marin_rules.engine.slurm_tracking import OwnJobs, Track, is_ours_to_cancel
from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenStep
from marin_rules.state.info import version_clash
from marin_rules.state.progress import made_progress, was_stopped_in
from marin_rules.state.run_registry import find_run
from marin_rules.state.status import CorruptStatusError, Status, read_status
from marin_rules.state.step_lease import open_lease
from marin_rules.state.submission_turn import kept, open_turn
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import describe
from marin_rules.worker.variables import in_this_environment

_FIRST_PAUSE_SECONDS = 0.5
_PAUSE_GROWTH = 1.3
"""Between two looks at the queue: short while something happens, then longer, up to Snakemake's own setting."""

_COMPLETING_SECONDS = 1.0
"""Between two looks at a job that is about to end, or to be queued again."""

_MISSING_SECONDS = 60.0
"""How long Slurm may not know a job that it has accepted, before it is taken for lost."""

_STATUS_SECONDS = 30.0
"""How long the status of a step may take to be seen here after its job has ended: network file systems cache."""


class Executor(StockExecutor):  # type: ignore[misc]
    """Submits steps, and watches over their jobs."""

    # Here, and not in `__post_init__`: the thread that watches is started before that.
    _pause = _FIRST_PAUSE_SECONDS
    _silent = False

    def __init__(self, workflow: Any, logger: Any) -> None:
        configuration = os.environ.get("SLURM_CONF")
        super().__init__(workflow, logger)  # Inside a job it forgets all that Slurm has set.
        if configuration is not None:
            os.environ["SLURM_CONF"] = configuration

    def __post_init__(self, test_mode: bool = False) -> None:
        super().__post_init__(test_mode)
        self._in_process = plan_in_process.current()
        self._tracks: dict[str, Track] = {}
        self._missing: dict[str, float] = {}
        """Jobs that Slurm does not know, and since when."""

        self._ours = OwnJobs()
        self._notices = Notices(self.logger)

    def get_python_executable(self) -> str:
        """For jobs that run Snakemake: not with the working directory on its path, for files there are the user's."""
        return f"{super().get_python_executable()} -P"

    # -- submitting ------------------------------------------------------------------------------------------

    def run_job(self, job: Any) -> None:
        step = self._step(job)
        if step is None:
            with in_this_environment(self._in_process.variables_of(job)):
                super().run_job(job)
            return
        track = self._tracks.setdefault(step.key, Track(step))
        track.restart()
        try:
            info = self._take_up(job, track)
        except Exception as error:  # Nobody looks at this thread: whatever it is, it has to be told here.
            if isinstance(error, SlurmError):
                job.attempt = job.restart_times + 1  # Another try would be refused in the same words.
            self._report_job_error_threadsafe(SubmittedJobInfo(job), f"could not be submitted: {error}")
            return
        self._pause = _FIRST_PAUSE_SECONDS
        if info is not None:
            self._report_job_submission_threadsafe(info)

    def _step(self, job: Any) -> FrozenStep | None:
        """The step of a job; None for jobs that are left to the stock executor."""
        if job.is_group() or job.resources.get("mpi") or not hasattr(job.wildcards, "step"):
            return None
        return self._in_process.plan.by_key.get(job.wildcards.step)

    def _take_up(self, job: Any, track: Track) -> SubmittedJobInfo | None:
        """Find a job that does the step already, or wait for whoever does it, or submit one."""
        step = track.step
        run = self._in_process.plan.run
        tag = Tag.of(run.id, step.key, run.absolute(step.output_path))
        tries = 0
        while not self._ours.closed.is_set():
            turn = open_turn(step.output_path)
            if turn.try_acquire() is not None:
                track.turn = turn
                return SubmittedJobInfo(job, aux={})
            try:
                with kept(turn) as require_turn:
                    info = self._in_turn(job, track, tag, require_turn)
                if info is not None:
                    track.refusals = None
                    return info
                self._ours.closed.wait(_COMPLETING_SECONDS)
            except SlurmBusyError as error:
                # A submission that got no answer may have been made: the next look at the queue finds it.
                self._notices.tell(f"wait   {step.name}: {error}; will try again")
                tries += 1
                self._ours.closed.wait(pause_seconds(tries))
            except LeaseLostError:
                continue  # We were held up for so long that another driver may have had its turn.
            except SlurmRefusedError:
                raise
            except SlurmError as error:
                return self._wait_after(error, job, track)
        return None

    def _in_turn(self, job: Any, track: Track, tag: Tag, require_turn: Callable[[], None]) -> SubmittedJobInfo | None:
        """The same while no other driver does so; None if a job of the step is about to end."""
        step = track.step
        found = live_job_of(tag, our_jobs().values())
        if found is not None:
            return None if found.state == "COMPLETING" else self._adopt(job, track, found)
        lease = open_lease(step.output_path, Owner.current())
        holder = lease.try_acquire()
        if holder is not None:
            track.lease = lease
            self._notices.tell(f"wait   {step.name}: held by {describe(holder, time.time())}")
            return SubmittedJobInfo(job, aux={})
        lease.release()
        if step.index not in self._in_process.plan.forced and _status(step) is Status.SUCCESS:
            return SubmittedJobInfo(job, aux={})  # Another driver's job has done it meanwhile, as the next look tells.
        require_turn()
        return self._submit(job, track, tag)

    def _wait_after(self, error: SlurmError, job: Any, track: Track) -> SubmittedJobInfo:
        """Try again in a while what Slurm has refused for a reason that may pass; raises when patience is at an end."""
        patience = self.workflow.executor_settings.refusal_patience
        refusals = Refusals.after(track.refusals, time.monotonic(), patience)
        if refusals is None:
            raise SlurmError(f"{error}; tried again for {patience} s") from error
        track.refusals = refusals
        self._notices.tell_once(f"wait   {track.step.name}: {error}; will try again for {patience} s")
        return SubmittedJobInfo(job, aux={})

    def _submit(self, job: Any, track: Track, tag: Tag) -> SubmittedJobInfo | None:
        step = track.step
        settings = self.workflow.executor_settings
        resources = job_resources(
            job,
            Queue() if step.rule is None else self._in_process.queue,
            qos=settings.qos,
            reservation=settings.reservation,
        )
        launch = self._in_process.launcher.for_step(
            step,
            cores=resources["cpus_per_task"],
            command=job_command(self, job, step),
            folder=str(self.workflow.workdir_init),
            log=str(self.slurm_logdir / "steps" / step.key.replace("%", "_") / f"{JOB}.log"),
        )
        request = JobRequest(
            name=step.job_name or step.name,
            tag=tag,
            script=launch.script,
            variables=launch.variables,
            log=launch.log,
            folder=launch.folder,
            resources=resources,
            requeue=not settings.no_requeue,
            excluded_nodes=tuple(sorted(self._failed_nodes)),
        )
        number = submit(request)
        if not self._ours.add(number):
            cancel([number])  # The run was cancelled in this very moment.
            return None
        self._notices.tell(f"queue  {step.name}: slurm job {number}, {slurm_words(resources)}")
        return self._info(job, number)

    def _adopt(self, job: Any, track: Track, found: SlurmJob) -> SubmittedJobInfo:
        """Go on with a job that another driver has submitted; it becomes ours if that driver is surely gone."""
        assert found.tag is not None
        run = find_run(found.tag.run)
        gone = None if run is None else run.driver_is_gone
        if is_ours_to_cancel(found.tag.run, self._in_process.plan.run.id, gone):
            self._ours.add(found.id)
        else:
            track.foreign_job = found
        track.restarts = found.restarts
        self._notices.tell(f"found  {track.step.name}: slurm job {found.id} of {found.tag.run} is at it")
        return self._info(job, found.id)

    def _info(self, job: Any, number: str) -> SubmittedJobInfo:
        if not self._in_process.launcher.shared:
            return SubmittedJobInfo(job, external_jobid=number, aux={})  # Its log is on its node.
        log = self.slurm_logdir / "steps" / job.wildcards.step.replace("%", "_") / f"{number}.log"
        return SubmittedJobInfo(job, external_jobid=number, aux={"slurm_logfile": log})

    # -- watching --------------------------------------------------------------------------------------------

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        jobs = self._ask(active_jobs)
        settled = False
        for info in active_jobs:
            try:
                live = self._has_to_be_waited_for(info, jobs)
            except Exception as error:  # It must not end the watch over all other jobs.
                self._notices.tell_once(f"could not look at slurm job {info.external_jobid}, will try again: {error!r}")
                live = True
            if live:
                yield info
            else:
                self._ours.discard(info.external_jobid)
                settled = True
        longest = float(self.workflow.remote_execution_settings.seconds_between_status_checks)
        self._pause = _FIRST_PAUSE_SECONDS if settled else min(self._pause * _PAUSE_GROWTH, longest)
        self.next_seconds_between_status_checks = min(self._pause, longest)

    def _has_to_be_waited_for(self, info: SubmittedJobInfo, jobs: Mapping[str, SlurmJob] | None) -> bool:
        track = self._track(info)
        if track is not None and track.turn is not None:
            return self._look_at_turn(info, track, track.turn)
        if track is not None and track.refusals is not None:
            return self._look_at_clock(info, track.refusals)
        if track is not None and track.lease is not None:
            return self._look_elsewhere(info, track, track.lease)
        if jobs is None:
            return not self._is_done_anyway(info)
        return self._look(info, track, jobs.get(info.external_jobid or ""))

    def _track(self, info: SubmittedJobInfo) -> Track | None:
        step = self._step(info.job)
        return None if step is None else self._tracks.get(step.key)

    def _ask(self, active_jobs: list[SubmittedJobInfo]) -> dict[str, SlurmJob] | None:
        """The jobs that Slurm knows; None if it does not answer."""
        ids = [info.external_jobid for info in active_jobs if info.external_jobid is not None]
        if not ids:
            return {}
        try:
            jobs = our_jobs()
        except Exception as error:  # Whatever it is, it must not end the watch.
            if not self._silent:
                self._notices.tell(f"slurm does not answer, its jobs go on: {error}")
            self._silent = True
            return None
        if self._silent:
            self._notices.tell("slurm answers again")
        self._silent = False
        return {**jobs, **forgotten_jobs([number for number in ids if number not in jobs])}

    def _look(self, info: SubmittedJobInfo, track: Track | None, job: SlurmJob | None) -> bool:
        """Whether a job still has to be waited for; one that has ended is reported."""
        if job is None:
            return self._look_for_missing(info, track)
        self._missing.pop(job.id, None)
        meaning = meaning_of(job.state)
        if track is not None:
            self._note_restarts(track, job)
        if meaning is Meaning.LIVE:
            return track is None or self._follow(info, track, job)
        if meaning is Meaning.DONE:
            return self._is_settling(info, track)
        if track is not None and self._is_interruption(track, meaning, job.id):
            return self._again(info, track, job)
        what = how_it_ended(job, meaning) + self._in_process.launcher.explain(None, job.id)
        self._fail(info, what, again=meaning is not Meaning.CANCELLED)
        return False

    def _is_settling(self, info: SubmittedJobInfo, track: Track | None) -> bool:
        """A job that ended well has written its step's status, which may take a while to be seen here."""
        if track is not None and _status(track.step) is not Status.SUCCESS:
            track.ended_at = track.ended_at or time.monotonic()
            if time.monotonic() - track.ended_at < _STATUS_SECONDS:
                return True
            self._fail(info, f"slurm job {info.external_jobid} ended well, but the step's status does not say so")
            return False
        self._succeed(info)
        return False

    def _look_for_missing(self, info: SubmittedJobInfo, track: Track | None) -> bool:
        """Slurm does not know the job: it is too new, or long forgotten. The step's status may tell more."""
        if self._is_done_anyway(info):
            return False
        number = info.external_jobid or ""
        now = time.monotonic()
        if now - self._missing.setdefault(number, now) < _MISSING_SECONDS:
            return True
        if track is not None:
            return self._again(info, track, SlurmJob(number, "forgotten by Slurm"))
        self._fail(info, f"slurm job {number} was forgotten by Slurm")
        return False

    def _is_done_anyway(self, info: SubmittedJobInfo) -> bool:
        """The step's own status tells of its end, unless it said so before the step was to run once more."""
        step = self._step(info.job)
        if step is None or step.index in self._in_process.plan.forced or _status(step) is not Status.SUCCESS:
            return False
        self._accept(info, step)
        return True

    def _accept(self, info: SubmittedJobInfo, step: FrozenStep) -> None:
        """A step that somebody else has finished; it may have been another version on the same path."""
        clash = version_clash(self._in_process.plan, step)
        if clash is None:
            self._succeed(info)
        else:
            self._fail(info, clash, again=False)

    def _look_at_turn(self, info: SubmittedJobInfo, track: Track, turn: Lease) -> bool:
        """Another driver is about to submit the step's job: look for that job once it has done so, or is gone."""
        if not _is_free(turn):
            return True
        track.turn = None
        self._job_submission_executor.submit(self.run_job, info.job)
        return False

    def _look_at_clock(self, info: SubmittedJobInfo, refusals: Refusals) -> bool:
        """Slurm did not take the step's job: try again when it is time."""
        if time.monotonic() < refusals.not_before:
            return True
        self._job_submission_executor.submit(self.run_job, info.job)
        return False

    def _look_elsewhere(self, info: SubmittedJobInfo, track: Track, lease: Lease) -> bool:
        """A step that another run is at: done, still under way, or free for us."""
        if not _is_free(lease):
            return True
        track.lease = None
        if _status(track.step) is Status.SUCCESS:
            self._accept(info, track.step)
        else:
            self._job_submission_executor.submit(self.run_job, info.job)
        return False

    def _is_interruption(self, track: Track, meaning: Meaning, number: str) -> bool:
        if meaning is Meaning.TIMED_OUT:
            with contextlib.suppress(Exception):
                return made_progress(track.step.output_path)
        if meaning is Meaning.FAILED:  # A signal came before Slurm ended the job: `--signal`, or a time of grace.
            with contextlib.suppress(Exception):
                return was_stopped_in(track.step.output_path, number) and made_progress(track.step.output_path)
        if meaning is Meaning.CANCELLED:
            return not self._ours.has(number)  # With the run that it belonged to, and not for our sake.
        return meaning is Meaning.INTERRUPTED

    def _again(self, info: SubmittedJobInfo, track: Track, job: SlurmJob) -> bool:
        """Submit a step again that lost its machine, unless that has happened too often."""
        track.interruptions += 1
        what = f"slurm job {job.id} was {job.state}{f' on {job.nodes}' if job.nodes else ''}"
        if self._is_too_often(info, track, what):
            return False
        self._notices.tell(f"again  {track.step.name}: {what}; submitted again{self._count(track)}")
        self._job_submission_executor.submit(self.run_job, info.job)
        return False

    def _follow(self, info: SubmittedJobInfo, track: Track, job: SlurmJob) -> bool:
        """Tell what happens to a job that lives. One that Slurm starts again and again is ended at last."""
        if self._is_too_often(info, track, f"slurm job {job.id} was taken off its machine"):
            with contextlib.suppress(SlurmError):
                cancel([job.id])
            return False
        if job.state == "RUNNING" and track.state != "RUNNING":
            self._notices.tell(f"start  {track.step.name} on {job.nodes}")
        elif job.state == "PENDING":
            self._notices.tell_why_it_waits(track.step.name, job)
        track.state = job.state
        track.nodes = job.nodes or track.nodes
        return True

    def _note_restarts(self, track: Track, job: SlurmJob) -> None:
        """Count how often Slurm itself started the job again since we last looked."""
        if job.restarts > track.restarts:
            track.interruptions += job.restarts - track.restarts
            track.restarts, track.state = job.restarts, ""
            where = track.nodes or "its machine"
            self._notices.tell(
                f"again  {track.step.name}: taken off {where}, queued again by Slurm{self._count(track)}"
            )

    def _is_too_often(self, info: SubmittedJobInfo, track: Track, what: str) -> bool:
        most = self.workflow.executor_settings.max_interruptions
        if track.interruptions <= most:
            return False
        self._fail(info, f"{what}; that happened {track.interruptions} times, and {most} are allowed", again=False)
        return True

    def _count(self, track: Track) -> str:
        return f" ({track.interruptions} of at most {self.workflow.executor_settings.max_interruptions})"

    # -- the end of a job ------------------------------------------------------------------------------------

    def _forget_foreign_job(self, info: SubmittedJobInfo) -> None:
        track = self._track(info)
        if track is not None:
            track.foreign_job = None

    def _succeed(self, info: SubmittedJobInfo) -> None:
        self._forget_foreign_job(info)
        self.report_job_success(info)
        log = (info.aux or {}).get("slurm_logfile")
        if log is not None and not self.workflow.executor_settings.keep_successful_logs:
            with contextlib.suppress(OSError):
                log.unlink()

    def _fail(self, info: SubmittedJobInfo, reason: str, *, again: bool = True) -> None:
        self._forget_foreign_job(info)
        if not again:
            job: Any = info.job
            job.attempt = job.restart_times + 1  # Snakemake takes it for the last attempt.
        log = (info.aux or {}).get("slurm_logfile")
        self.report_job_error(info, msg=reason, aux_logs=[str(log)] if log else [])

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """End all that this run has submitted, also what is being looked at or submitted in this moment."""
        ids = self._ours.close()
        ids |= {info.external_jobid for info in active_jobs if info.external_jobid and self._track(info) is None}
        for track in list(self._tracks.values()):
            job = track.foreign_job
            if job is not None and job.tag is not None:
                self._notices.tell(
                    f"left   {track.step.name}: slurm job {job.id} belongs to run {job.tag.run};"
                    f" `scancel {job.id}` would end it"
                )
        if not ids:
            return
        try:
            cancel(sorted(ids))
            self._notices.tell(f"cancelled slurm jobs {', '.join(sorted(ids))}")
        except SlurmError as error:
            self._notices.tell(f"could not cancel the jobs: {error}. Do it by hand: scancel {' '.join(sorted(ids))}")


def _status(step: FrozenStep) -> Status | None:
    try:
        return read_status(step.output_path)
    except (OSError, CorruptStatusError):
        return None


def _is_free(lease: Lease) -> bool:
    """Whether a lease that another one had can be taken; it is not kept."""
    try:
        if lease.try_acquire() is not None:
            return False
        lease.release()
    except (OSError, MarinRulesError):
        return False
    return True
