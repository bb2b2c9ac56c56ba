"""Slurm's queue through slurm-drmaa, for sites that do not allow sbatch and squeue.

The library is asked for one job at a time, and only for jobs of this process: those of others are not found. It says
that a job failed but not why, so no job counts as cancelled or interrupted unless its step says so.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from marin_rules.clusters.protocol import (
    JOB,
    BusyError,
    ClusterError,
    ClusterJob,
    Extra,
    FullError,
    JobRequest,
    JobState,
    RefusedError,
)
from marin_rules.clusters.slurm.native_options import native_options
from marin_rules.clusters.slurm.refusals import Refusal, kind_of
from marin_rules.clusters.slurm.submission import log_pattern
from marin_rules.errors import SettingsError

_STATES = {
    "queued_active": JobState.WAITING,
    "system_on_hold": JobState.WAITING,
    "user_on_hold": JobState.WAITING,
    "user_system_on_hold": JobState.WAITING,
    "running": JobState.RUNNING,
    "system_suspended": JobState.SUSPENDED,
    "user_suspended": JobState.SUSPENDED,
    "user_system_suspended": JobState.SUSPENDED,
    "done": JobState.DONE,
    "failed": JobState.FAILED,
}
"""By the words of the Python package."""

_SET_BY_SLURM = ("SLURM", "CUDA_VISIBLE", "GPU_DEVICE", "HIP_VISIBLE", "ROCR_VISIBLE", "ZE_AFFINITY", "TMPDIR")
"""The beginnings of variables that a job may get from Slurm itself."""

_HELD = "on_hold"
_UNKNOWN_JOB = "InvalidJobException"

_WRONG_REQUESTS = (
    "InvalidAttributeValueException",
    "InvalidAttributeFormatException",
    "InvalidArgumentException",
    "ConflictingAttributeValuesException",
    "UnsupportedAttributeException",
)
"""Errors of the library about options that it does not know: they will be refused again."""

_ERRORS = {
    Refusal.PASSING: BusyError,
    Refusal.FULL: FullError,
    Refusal.UNKNOWN: ClusterError,
    Refusal.LASTING: RefusedError,
}


class DrmaaQueue:
    """A session of the library. See `protocol.JobQueue`."""

    cluster = "slurm"
    title = "Slurm"
    most_elements = 0

    def __init__(self) -> None:
        try:
            import drmaa
        except ModuleNotFoundError as error:
            raise SettingsError(
                "this executor needs the Python package drmaa: install it with `pip install"
                " 'marin-rules[slurm-drmaa]'`, or leave out the profile to run on this machine"
            ) from error
        except (OSError, RuntimeError) as error:  # The second says that no library was found.
            path = os.environ.get("DRMAA_LIBRARY_PATH")
            what = f"DRMAA_LIBRARY_PATH={path} cannot be loaded" if path else "DRMAA_LIBRARY_PATH is not set"
            raise SettingsError(
                f"{what} ({' '.join(str(error).split())}): set it to slurm-drmaa's libdrmaa.so, or use --profile slurm"
            ) from error
        self._failure: type[Exception] = drmaa.errors.DrmaaException
        self._terminate = drmaa.const.JobControlAction.TERMINATE
        self._session: Any = drmaa.Session()
        self._submitting = threading.Lock()
        self._scripts = tempfile.TemporaryDirectory(prefix="jobs.", dir=_folder_for_scripts())
        try:
            self._session.initialize()
        except drmaa.errors.AlreadyActiveSessionException:
            pass
        except self._failure as error:
            raise SettingsError(f"slurm-drmaa does not start: {_text(error)}") from error

    def deal(self, tasks: Sequence[int]) -> Sequence[Sequence[int]]:
        raise RefusedError("slurm-drmaa submits no arrays of jobs: use `--profile slurm` for steps with tasks")

    def submit(self, request: JobRequest) -> str:
        os.makedirs(os.path.dirname(request.log), exist_ok=True)
        with self._submitting:  # What the library sends along is the environment of this process.
            template = self._session.createJobTemplate()
            try:
                # The library writes a line of bash: the command unchanged, each argument in single quotes.
                template.remoteCommand = "exec"
                template.args = ["bash", self._write_script(request).replace("'", "'\\''")]
                template.nativeSpecification = self._options(request)
                template.jobName = _job_name(request.name)
                with _in_this_process(request.variables):
                    return str(self._session.runJob(template))
            except self._failure as error:
                raise _refusal(error) from error
            finally:
                self._session.deleteJobTemplate(template)

    def _options(self, request: JobRequest) -> str:
        log = log_pattern(os.path.relpath(request.log, os.getcwd()))  # Its folder may have a space in its name.
        extra = ["" if request.requeue else "--no-requeue"]
        extra += [f"--exclude={','.join(request.excluded_nodes)}"] if request.excluded_nodes else []
        given = request.resources
        return native_options(
            given,
            threads=given.get("cpus_per_task") or 1,
            log=log,
            extra=" ".join([*extra, given.get("drmaa_args") or ""]).strip(),
        )

    def _write_script(self, request: JobRequest) -> str:
        descriptor, path = tempfile.mkstemp(prefix="job.", suffix=".sh", dir=self._scripts.name)
        with os.fdopen(descriptor, "w") as file:
            file.write(_script(request))
        return path

    def jobs(self) -> dict[str, ClusterJob]:
        """None: the library only reports on jobs that it is asked about."""
        return {}

    def look(self, ids: Sequence[str]) -> dict[str, ClusterJob]:
        jobs = map(self._look_at, ids)
        return {job.id: job for job in jobs if job is not None}

    def _look_at(self, number: str) -> ClusterJob | None:
        try:
            word = str(self._session.jobStatus(number))
        except self._failure as error:
            if type(error).__name__ == _UNKNOWN_JOB:
                return None
            raise BusyError(_text(error)) from error
        return ClusterJob(
            self.cluster,
            number,
            _STATES.get(word, JobState.WAITING),
            word.upper(),
            reason="JobHeld" if word.endswith(_HELD) else "",
        )

    def cancel(self, ids: Sequence[str]) -> None:
        for number in ids:
            with contextlib.suppress(self._failure):  # It has ended already.
                self._session.control(number, self._terminate)

    def extras(self) -> tuple[Extra, ...]:
        """A job of Slurm has nothing beside it."""
        return ()

    def remove(self, extra: Extra) -> None:
        """There is none."""

    def log_of(self, log: str, job: str) -> str:
        return log.replace(JOB, job)

    def last_lines(self, job: str, count: int) -> list[str]:
        """None: they are in its file."""
        return []

    def advice(self, job: ClusterJob) -> str | None:
        return f"it is held; `scontrol release {job.id}` releases it" if job.reason else None

    def cancel_command(self, ids: Sequence[str]) -> str:
        return f"scancel {' '.join(ids)}"

    def close(self) -> None:
        with contextlib.suppress(self._failure):
            self._session.exit()
        self._scripts.cleanup()


def _script(request: JobRequest) -> str:
    lines = [
        "#!/usr/bin/env bash",
        f"cd {shlex.quote(request.folder)} || exit 1",
        # Jobs of the library lack it, and srun of ranks needs it.
        f"export SLURM_CPUS_PER_TASK={request.resources.get('cpus_per_task') or 1}",
    ]
    # The library passes our whole environment on, more than the job should have.
    unwanted = {name for name in os.environ if name.isidentifier() and not name.startswith(_SET_BY_SLURM)}
    lines += [f"unset {name}" for name in sorted(unwanted - request.variables.keys())]
    return "\n".join([*lines, request.script, ""])


@contextlib.contextmanager
def _in_this_process(variables: Mapping[str, str]) -> Iterator[None]:
    """For the library, which sends the environment of this process along, whatever it is then.

    Not through `os.environ`, which other threads read: what is meant for one job must not reach another.
    """
    changed = [name for name, value in variables.items() if os.environ.get(name) != value]
    try:
        for name in changed:
            os.putenv(name, variables[name])
        yield
    finally:
        for name in changed:
            if name in os.environ:
                os.putenv(name, os.environ[name])
            else:
                os.unsetenv(name)


def _folder_for_scripts() -> str:
    """A folder that all nodes see: the one of the run."""
    os.makedirs(".snakemake", exist_ok=True)
    return os.path.abspath(".snakemake")


def _job_name(name: str) -> str:
    return name.replace(" ", "_")


def _refusal(error: Exception) -> ClusterError:
    text = _text(error)
    is_wrong = type(error).__name__ in _WRONG_REQUESTS
    return _ERRORS[Refusal.LASTING if is_wrong else kind_of(text)](text)


def _text(error: BaseException) -> str:
    """The library's errors are bytes, or a number and a text."""
    parts = [part.decode(errors="replace") if isinstance(part, bytes) else str(part) for part in error.args]
    return " ".join(" ".join(parts).split()) or type(error).__name__
