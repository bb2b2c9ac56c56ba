"""Jobs on a cluster: the one executor behind `--executor marin-slurm` and `--executor marin-drmaa`.

The settings say which cluster it is; this file knows only the protocol of all clusters. Its parts:

- `cluster_takeup` puts a job into the queue, once, or finds one that is already there;
- `cluster_watch` looks at the jobs, and does what `clusters.policy` decides;
- here is what Snakemake wants: its calls, in its threads.

The job of a step runs the step's worker itself. Groups of steps and hand-written rules have jobs that start Snakemake.
The queue is checked twice a second at first, then less and less often.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from marin_rules.clusters.open import open_cluster
from marin_rules.clusters.policy import Absence, History
from marin_rules.clusters.prices import price_variables
from marin_rules.clusters.protocol import ClusterError, ClusterJob, JobRequest, JobTag
from marin_rules.engine import plan_in_process
from marin_rules.engine.cluster_notices import Notices
from marin_rules.engine.cluster_settings import ClusterSettings
from marin_rules.engine.cluster_takeup import LOG, TakeUp
from marin_rules.engine.cluster_tracking import Clock, OwnJobs, Track
from marin_rules.engine.cluster_watch import Watch
from marin_rules.engine.interrupts import INTERRUPTS
from marin_rules.engine.job_command import job_command
from marin_rules.engine.job_logs import JobLogs
from marin_rules.engine.job_output import JobOutput
from marin_rules.errors import MarinRulesError, SettingsError
from marin_rules.plans.frozen import FrozenStep
from marin_rules.worker.command import element_arguments

_FIRST_PAUSE_SECONDS = 0.5
_PAUSE_GROWTH = 1.3
"""The pause between two looks at the queue: short while something happens, then longer, up to Snakemake's setting."""

_GLANCE_SECONDS = 0.2
"""The end of a run does not wait for the next look at its jobs."""

_SUBMITTERS = 2


class ClusterExecutor(RemoteExecutor):
    """Submits jobs, and watches over them."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        # Everything that the watch needs: the base class starts the thread that watches.
        self._in_process = plan_in_process.current()
        self._settings: ClusterSettings = workflow.executor_settings
        self._clock = Clock()
        self._notices = Notices(logger)
        self._ours = OwnJobs()
        self._tracks: dict[str, Track] = {}
        self._pause = _FIRST_PAUSE_SECONDS
        self._loop: asyncio.AbstractEventLoop | None = None
        self._submitters = ThreadPoolExecutor(_SUBMITTERS, thread_name_prefix="submit")
        self._formatting = threading.local()
        cluster = open_cluster(self._settings.cluster)
        self._logs = JobLogs(
            self._settings.logdir or os.path.join(".snakemake", f"{cluster.name}_logs"),
            keep_successful=self._settings.keep_successful_logs,
            days=self._settings.delete_logfiles_older_than,
        )
        try:
            self._queue = cluster.open_queue(self._in_process.plan.run.cluster)
        except MarinRulesError as error:
            raise WorkflowError(str(error)) from error
        self._output = JobOutput(self._queue, self._in_process.launcher)
        plan = self._in_process.plan
        self._take_up = TakeUp(
            plan,
            self._queue,
            ours=self._ours,
            notices=self._notices,
            request_for=self._request_for,
            describe_job=self._describe,
            log_of=self._log_here,
            most_interruptions=self._settings.max_interruptions,
            patience=self._settings.refusal_patience,
            clock=self._clock,
        )
        self._watch = Watch(plan, self._queue, ours=self._ours, notices=self._notices, reports=self, clock=self._clock)
        super().__init__(workflow, logger)

    # -- submitting ------------------------------------------------------------------------------------------

    def run_jobs(self, jobs: list[Any]) -> None:
        with contextlib.suppress(RuntimeError):  # Outside of one.
            self._loop = asyncio.get_running_loop()
        for job in jobs:
            self.run_job_pre(job)
            self.submit_again(job)

    def submit_again(self, job: Any) -> None:
        with contextlib.suppress(RuntimeError):  # The run is over.
            self._submitters.submit(self.run_job, job)

    def run_job(self, job: Any) -> None:
        """In a thread that nobody looks at: anything that goes wrong has to be reported here."""
        try:
            info = self._take_up(job, self._track(job))
        except Exception as error:
            if isinstance(error, (ClusterError, SettingsError)):
                _make_last_attempt(job)  # Another one would be refused in the same way.
            reason = f"could not be submitted: {error}"
            self._in_main_thread(self.report_job_error, SubmittedJobInfo(job), reason)
            return
        self._pause = _FIRST_PAUSE_SECONDS
        if info is not None:
            self._in_main_thread(self.report_job_submission, info)

    def _in_main_thread(self, report: Any, *arguments: Any) -> None:
        if self._loop is None:
            report(*arguments)
        else:
            self._loop.call_soon_threadsafe(report, *arguments)

    def _step(self, job: Any) -> FrozenStep | None:
        """The step of a job; None for a group of them."""
        return None if job.is_group() else self._in_process.plan.by_key.get(getattr(job.wildcards, "step", ""))

    def _track(self, job: Any) -> Track:
        step = self._step(job)
        key = f"job {job.jobid}" if step is None else step.key
        if key not in self._tracks:
            history = History(
                name=str(job.name) if step is None else step.name,
                cluster=self._queue.cluster,
                title=self._queue.title,
                job="",
                most_interruptions=self._settings.max_interruptions,
                has_word=step is not None,
                was_done_before=step is not None and step.index in self._in_process.plan.forced,
            )
            self._tracks[key] = Track(step, history)
        return self._tracks[key]

    def _request_for(
        self, job: Any, step: FrozenStep | None, tag: JobTag | None, tasks: Sequence[int] | None
    ) -> JobRequest:
        resources = self._resources(job, step)
        cores = resources["cpus_per_task"]
        self._formatting.cores = cores
        command = str(self.format_job_exec(job)) if step is None else job_command(self, job, step)
        launcher, folder, log = self._in_process.launcher, str(self.workflow.workdir_init), self._logs.of(job, step)
        if step is None:
            numbers = self._in_process.variables_of(job)
            launch = launcher.for_group(numbers, cores=cores, command=command, folder=folder, log=log)
        else:
            own = () if tag is None or tag.tasks is None else element_arguments(tag.tasks.round, tag.tasks.first)
            launch = launcher.for_step(step, own, cores=cores, command=command, folder=folder, log=log)
        return JobRequest(
            name=str(job.name) if step is None else step.job_name or step.name,
            tag=tag,
            script=launch.script,
            variables={**launch.variables, **({} if step is None else self._price(resources))},
            folder=launch.folder,
            meeting_place=launcher.meeting_place,
            log=launch.log,
            resources=resources,
            requeue=not self._settings.no_requeue,
            excluded_nodes=self._settings.excluded_nodes,
            elements=None if tasks is None else [task - tasks[0] for task in tasks],
            at_once=None if tasks is None else resources.get("tasks_at_once"),
        )

    def _log_here(self, job: Any, step: FrozenStep | None) -> str | None:
        """Where a job's log can be read; None if it is on its node."""
        return self._logs.of(job, step) if self._in_process.launcher.shared else None

    def _describe(self, request: JobRequest) -> str:
        return "" if self._in_process.site is None else self._in_process.site.describe(request.resources)

    def _price(self, resources: Mapping[str, Any]) -> dict[str, str]:
        """For the books of a step that has its job to itself."""
        site = self._in_process.site
        return {} if site is None else price_variables(site.price(resources))

    def _resources(self, job: Any, step: FrozenStep | None) -> dict[str, Any]:
        """What a job asks for; if a hand-written rule says nothing, what the settings and the cluster's file say."""
        site = self._in_process.site
        found: dict[str, Any] = {"cpus_per_task": job.threads}
        if site is not None and (step is None or step.rule is not None):
            found |= site.defaults()
        found |= {name: value for name, value in self._settings.job_resources().items() if value}
        return found | {name: value for name, value in job.resources.items() if value is not None}

    # -- what Snakemake in a job is told ---------------------------------------------------------------------

    @property
    def cores(self) -> int | str:
        """How many cores it has: those of the job, and not those of the driver."""
        return getattr(self._formatting, "cores", "all")

    def get_python_executable(self) -> str:
        """Without the working directory on its path, because files there are the user's."""
        return f"{super().get_python_executable()} -P"  # type: ignore[no-untyped-call]

    # -- watching --------------------------------------------------------------------------------------------

    async def check_active_jobs(  # type: ignore[override]
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        left = 0
        for info in self._watch.look([(info, self._track(info.job)) for info in active_jobs]):
            left += 1
            yield info
        longest = float(self.workflow.remote_execution_settings.seconds_between_status_checks)
        settled = left < len(active_jobs)
        self._pause = _FIRST_PAUSE_SECONDS if settled else min(self._pause * _PAUSE_GROWTH, longest)
        self.next_seconds_between_status_checks = min(self._pause, longest)

    async def sleep(self) -> None:
        """Until the next look at the jobs, or the end of the run."""
        due = time.monotonic() + self.next_seconds_between_status_checks
        while self.wait and (left := due - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _GLANCE_SECONDS))

    def remove_log(self, log: str) -> None:
        self._logs.remove(log)

    def succeeded(self, info: SubmittedJobInfo) -> None:
        self.report_job_success(info)
        if log := (info.aux or {}).get(LOG):
            self._logs.remove(log)

    def failed(self, info: SubmittedJobInfo, reason: str, *, may_retry: bool) -> None:
        if not may_retry:
            _make_last_attempt(info.job)
        log = (info.aux or {}).get(LOG)
        self.report_job_error(info, msg=reason, aux_logs=[log] if log else [])

    def explain(self, job: ClusterJob | Absence, log: str | None) -> str:
        return self._output.explain(job, log)

    # -- the end ---------------------------------------------------------------------------------------------

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """End everything that this run has submitted, including jobs being looked at or submitted at this moment."""
        ids = sorted(self._ours.close())
        queue = self._queue
        if INTERRUPTS.leaves_jobs:
            if ids:
                self._notices.tell(f"left   {queue.cluster} jobs {', '.join(ids)}: they continue, and so will this run")
            return
        for track in list(self._tracks.values()):
            job = track.foreign_job
            if job is not None and job.tag is not None:
                self._notices.tell(
                    f"left   {track.name}: {queue.cluster} job {job.id} belongs to run {job.tag.run};"
                    f" `{queue.cancel_command([job.id])}` would end it"
                )
        if not ids:
            return
        self._watch.end_arrays(self._tracks.values())
        try:
            queue.cancel(ids)
            self._notices.tell(f"cancelled {queue.cluster} jobs {', '.join(ids)}")
        except ClusterError as error:
            self._notices.tell(f"could not cancel the jobs: {error}. Do it by hand: {queue.cancel_command(ids)}")

    def shutdown(self) -> None:
        self._submitters.shutdown(wait=True)
        super().shutdown()  # type: ignore[no-untyped-call]
        self._queue.close()
        self._logs.clean()


def _make_last_attempt(job: Any) -> None:
    """Keep Snakemake from trying again, whatever the number of retries."""
    job.attempt = job.restart_times + 1
