"""`--executor marin-drmaa`: jobs through slurm-drmaa, where sbatch and squeue may not be used.

Snakemake's own DRMAA plug-in has one line of options for all jobs, runs Snakemake in each of them, and does not survive
a submission that is refused. Here

- each job asks for the resources that it has;
- the job of a step runs the step's worker itself, in the place of its shell: so Slurm's signals reach it, it has all of
  the step's memory, and it sees the cores of the step and not those of the driver;
- a submission that is refused is tried again for a while, or fails with Slurm's words;
- a failure names the job and the job's own log, and an answer that does not come says nothing about a job;
- the end of a run does not wait for the next look at its jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shlex
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from marin_rules.clusters.patience import Refusals
from marin_rules.clusters.slurm.native_options import native_options
from marin_rules.clusters.slurm.refusals import Refusal, kind_of
from marin_rules.clusters.slurm.site import Queue
from marin_rules.driver.launch import THREADS
from marin_rules.engine import plan_in_process
from marin_rules.engine.job_command import job_command
from marin_rules.engine.job_resources import slurm_words
from marin_rules.engine.slurm_job import job_resources
from marin_rules.engine.slurm_notices import Notices
from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenStep
from marin_rules.storage.files import read_part
from marin_rules.worker.variables import in_this_environment
from marin_rules.worker.warm.client import WARM_VARIABLE

_LOG_FOLDER = os.path.join(".snakemake", "slurm_logs")
_FIRST_PAUSE_SECONDS = 1.0
_PAUSE_GROWTH = 1.3
"""Between two looks at the jobs: short while something happens, then longer, up to Snakemake's own setting."""

_GLANCE_SECONDS = 0.2
_REFUSAL_SECONDS = 300.0
"""For how long a job is submitted again that Slurm refuses for an unknown reason."""

_LOG_BYTES = 4096
_WRONG_REQUESTS = (
    "InvalidAttributeValueException",
    "InvalidAttributeFormatException",
    "InvalidArgumentException",
    "ConflictingAttributeValuesException",
    "UnsupportedAttributeException",
)
"""Errors of the library about options that it does not know: they will be refused again."""


class Executor(RemoteExecutor):
    """Submits jobs, and watches over them."""

    # Here, and not in `__post_init__`: the thread that watches is started before that.
    _pause = _FIRST_PAUSE_SECONDS
    _job_cores: int | None = None

    def __post_init__(self) -> None:
        self._notices = Notices(self.logger)
        try:
            import drmaa
        except ModuleNotFoundError as error:
            raise WorkflowError(
                "this executor needs the Python package drmaa: install it with `pip install"
                " 'marin-rules[slurm-drmaa]'`, or leave out the profile to run on this machine"
            ) from error
        except (OSError, RuntimeError) as error:  # The second says that no library was found.
            path = os.environ.get("DRMAA_LIBRARY_PATH")
            what = f"DRMAA_LIBRARY_PATH={path} cannot be loaded" if path else "DRMAA_LIBRARY_PATH is not set"
            raise WorkflowError(
                f"{what} ({' '.join(str(error).split())}): set it to slurm-drmaa's libdrmaa.so, or use --profile slurm"
            ) from error
        self.session = drmaa.Session()
        try:
            self.session.initialize()
        except drmaa.errors.AlreadyActiveSessionException:
            pass
        except drmaa.errors.DrmaaException as error:
            raise WorkflowError(f"slurm-drmaa does not start: {_text(error)}") from error

    @property
    def cores(self) -> int | str:
        """How many cores the Snakemake in a job is told of: those of the job, and not those of the driver."""
        return self._job_cores or "all"

    # -- submitting ------------------------------------------------------------------------------------------

    def run_job(self, job: Any) -> None:
        info = SubmittedJobInfo(job, aux={})
        if self._submit(info):
            self.report_job_submission(info)

    def _submit(self, info: SubmittedJobInfo) -> bool:
        """Hand a job to Slurm, or note when to try again; False if there is no hope, which is reported."""
        from drmaa.errors import DrmaaException

        job: Any = info.job
        assert info.aux is not None
        try:
            number, log = self._hand_over(job, resources := self._resources(job))
        except DrmaaException as error:
            is_wrong = type(error).__name__ in _WRONG_REQUESTS
            kind = Refusal.LASTING if is_wrong else kind_of(_text(error))
            patience = {Refusal.PASSING: math.inf, Refusal.UNKNOWN: _REFUSAL_SECONDS, Refusal.LASTING: 0.0}[kind]
            refusals = Refusals.after(info.aux.get("refusals"), time.monotonic(), patience)
            if refusals is not None:
                info.aux["refusals"] = refusals
                self._notices.tell_once(f"wait   {_name(job)}: {_text(error)}; will try again")
                return True
            return self._give_up(info, _text(error))
        except MarinRulesError as error:
            return self._give_up(info, str(error))
        info.aux = {"log": log.replace("%j", number)}
        info.external_jobid = number
        self._pause = _FIRST_PAUSE_SECONDS
        self._notices.tell(f"queue  {_name(job)}: slurm job {number}, {slurm_words(resources)}")
        return True

    def _give_up(self, info: SubmittedJobInfo, reason: str) -> bool:
        job: Any = info.job
        job.attempt = job.restart_times + 1  # Another try would be refused in the same words.
        self.report_job_error(info, msg=f"could not be submitted: {reason}")
        return False

    def _resources(self, job: Any) -> Mapping[str, Any]:
        step = _step(job)
        return job_resources(job, Queue() if step is None or step.rule is None else plan_in_process.current().queue)

    def _hand_over(self, job: Any, resources: Mapping[str, Any]) -> tuple[str, str]:
        """Submit a job; returns its number, and where its log is, with `%j` for the number."""
        os.makedirs(_LOG_FOLDER, exist_ok=True)
        log = os.path.join(_LOG_FOLDER, f"{job.name}-%j.log")
        workflow: Any = self.workflow
        script = self.get_jobscript(job)
        with open(script, "w", opener=lambda path, flags: os.open(path, flags, 0o700)) as file:
            file.write(self._script(job, resources["cpus_per_task"]))
        template = self.session.createJobTemplate()
        try:
            # The library writes a line of bash: the command as it is, each argument between single quotes.
            template.remoteCommand = "exec"
            template.args = ["bash", script.replace("'", "'\\''")]
            template.nativeSpecification = native_options(
                resources, threads=job.threads, log=log, extra=workflow.executor_settings.args
            )
            template.jobName = os.path.basename(script)
            with in_this_environment(plan_in_process.current().variables_of(job)):
                return str(self.session.runJob(template)), log
        finally:
            self.session.deleteJobTemplate(template)

    def _script(self, job: Any, cores: int) -> str:
        lines = [
            "#!/usr/bin/env bash",
            f"cd {shlex.quote(str(self.workflow.workdir_init))} || exit 1",
            # It has all of our environment, but must not leave its allocation for a warm worker beside us.
            f"unset {WARM_VARIABLE}",
            f"export SLURM_CPUS_PER_TASK={cores}",  # Jobs of the library lack it, and srun of ranks needs it.
            *(f'export {name}="${{{name}:-{cores}}}"' for name in THREADS),
        ]
        self._job_cores = cores
        step = _step(job)
        command = str(self.format_job_exec(job)) if step is None else job_command(self, job, step)
        return "\n".join([*lines, command, ""])

    def get_python_executable(self) -> str:
        """For jobs that run Snakemake: not with the working directory on its path, for files there are the user's."""
        return f"{super().get_python_executable()} -P"  # type: ignore[no-untyped-call]

    # -- watching --------------------------------------------------------------------------------------------

    async def check_active_jobs(  # type: ignore[override]
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        settled = False
        for info in active_jobs:
            async with self.status_rate_limiter:
                try:
                    live = self._look(info)
                except Exception as error:  # Slurm may be silent for a while: nothing is concluded from that.
                    self._notices.tell_once(f"could not look at {_name(info.job)}, will try again: {_text(error)}")
                    live = True
            if live:
                yield info
            settled = settled or not live
        longest = float(self.workflow.remote_execution_settings.seconds_between_status_checks)
        self._pause = _FIRST_PAUSE_SECONDS if settled else min(self._pause * _PAUSE_GROWTH, longest)
        self.next_seconds_between_status_checks = min(self._pause, longest)

    def _look(self, info: SubmittedJobInfo) -> bool:
        """Whether a job still has to be waited for; one that has ended is reported."""
        from drmaa import JobState

        refusals = (info.aux or {}).get("refusals")
        if refusals is not None:
            return time.monotonic() < refusals.not_before or self._submit(info)
        state = self.session.jobStatus(info.external_jobid)
        if state == JobState.DONE:
            self.report_job_success(info)
            return False
        if state == JobState.FAILED:
            self._fail(info)
            return False
        if state in (JobState.USER_ON_HOLD, JobState.SYSTEM_ON_HOLD):
            number = info.external_jobid
            self._notices.tell_once(
                f"waits  {_name(info.job)}: slurm job {number} is held; `scontrol release {number}` lets it go"
            )
        return True

    def _fail(self, info: SubmittedJobInfo) -> None:
        log = (info.aux or {}).get("log")
        last = _last_line(log) if log else None
        reason = f"slurm job {info.external_jobid} failed; what the job itself printed is in {log}"
        self.report_job_error(
            info, msg=f"{reason}{f', at last: {last}' if last else ''}", aux_logs=[log] if log else []
        )

    async def sleep(self) -> None:
        """Until the next look at the jobs, or the end of the run."""
        due = time.monotonic() + self.next_seconds_between_status_checks
        while self.wait and time.monotonic() < due:
            await asyncio.sleep(_GLANCE_SECONDS)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        from drmaa.const import JobControlAction
        from drmaa.errors import DrmaaException

        for info in active_jobs:
            if info.external_jobid is not None:
                with contextlib.suppress(DrmaaException):  # It has ended already.
                    self.session.control(info.external_jobid, JobControlAction.TERMINATE)

    def shutdown(self) -> None:
        super().shutdown()  # type: ignore[no-untyped-call]
        self.session.exit()

    def get_job_exec_prefix(self, job: Any) -> str:
        """Nothing: the script of a job says it."""
        return ""


def _step(job: Any) -> FrozenStep | None:
    """The step of a job; None for a group of jobs, and for rules that are no steps."""
    return None if job.is_group() else plan_in_process.current().plan.by_key.get(getattr(job.wildcards, "step", ""))


def _name(job: Any) -> str:
    step = _step(job)
    return str(job.name) if step is None else step.name


def _text(error: BaseException) -> str:
    """The library's errors are bytes, or a number and a text."""
    parts = [part.decode(errors="replace") if isinstance(part, bytes) else str(part) for part in error.args]
    return " ".join(" ".join(parts).split()) or type(error).__name__


def _last_line(path: str) -> str | None:
    with contextlib.suppress(OSError):
        lines = (read_part(path, -_LOG_BYTES, _LOG_BYTES) or b"").decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), None)
    return None
