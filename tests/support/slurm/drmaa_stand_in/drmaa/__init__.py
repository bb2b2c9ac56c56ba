"""Stands in for the Python package `drmaa` with slurm-drmaa's library, which no package index has: jobs reach a real
Slurm through sbatch, but only as far as that library would let them.

As it does: a job's script is the command as it is, then each argument between single quotes; options are read as
`test_drmaa.py` says, and unknown ones are refused; of several `--mem` the largest counts; jobs lack
SLURM_CPUS_PER_TASK; the environment is the whole one of this process.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import Any

from drmaa import const, errors
from drmaa.const import JobControlAction, JobState
from drmaa.errors import *  # noqa: F403
from drmaa.errors import DeniedByDrmException, InternalException, InvalidAttributeValueException

__all__ = ["JobControlAction", "JobState", "Session", "const", "errors"]

if not os.path.exists(os.environ["DRMAA_LIBRARY_PATH"]):
    raise OSError(f"{os.environ['DRMAA_LIBRARY_PATH']}: cannot open shared object file: No such file or directory")

_WITH_VALUE = (
    "partition", "account", "qos", "reservation", "constraint", "nodes", "ntasks", "ntasks-per-node", "cpus-per-task",
    "mincpus", "exclude", "nodelist", "comment", "dependency", "mail-type", "output",
)  # fmt: skip
_WITHOUT_VALUE = ("exclusive", "requeue", "no-requeue")

_STATES: dict[str, str] = {
    "PENDING": JobState.QUEUED_ACTIVE,
    "RUNNING": JobState.RUNNING,
    "COMPLETING": JobState.RUNNING,
    "SUSPENDED": JobState.SYSTEM_SUSPENDED,
    "COMPLETED": JobState.DONE,
}


def _sbatch_options(specification: str) -> list[str]:
    words, memory = [], 0
    for word in specification.split():
        option, _, value = word.removeprefix("--").partition("=")
        if option == "mem" and value.isdecimal():
            memory = max(memory, int(value))
        elif option == "time" and re.fullmatch(r"\d+:\d+(:\d+)?", value):
            hours, minutes = value.split(":")[:2]
            words.append(f"--time={int(hours) * 60 + int(minutes)}")
        elif option == "gres" and value.startswith("gres:"):
            words.append(f"--gres={value.replace('gres:', '')}")
        elif (option in _WITH_VALUE and value and "=" not in value) or (option in _WITHOUT_VALUE and not value):
            words.append(word)
        else:
            raise InvalidAttributeValueException(f"code 14: Invalid native specification: {word}")
    return [*words, f"--mem={memory}"] if memory else words


class JobTemplate:
    remoteCommand: str
    args: list[str]
    nativeSpecification: str
    jobName: str


class Session:
    def initialize(self) -> None:
        pass

    def exit(self) -> None:
        pass

    def createJobTemplate(self) -> JobTemplate:
        return JobTemplate()

    def deleteJobTemplate(self, template: JobTemplate) -> None:
        pass

    def runJob(self, template: JobTemplate) -> str:
        line = " ".join([template.remoteCommand, *(f"'{argument}'" for argument in template.args)])
        script = f"#!/bin/bash\nunset SLURM_CPUS_PER_TASK\n{line}\n"
        options = _sbatch_options(template.nativeSpecification)
        ran = _run("sbatch", "--parsable", f"--job-name={template.jobName}", *options, input=script)
        if ran.returncode:
            kind = InternalException if "contact" in ran.stderr else DeniedByDrmException
            raise kind(f"code 1: slurm_submit_batch_job error: {ran.stderr.strip()}".encode())
        return ran.stdout.strip()

    def jobStatus(self, number: str) -> str:
        ran = _run("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T|%r")
        if ran.returncode:
            raise InternalException(f"code 1: slurm_load_jobs error: {ran.stderr.strip()}")
        state, reason = ran.stdout.strip().split("|")
        return str(JobState.USER_ON_HOLD if reason == "JobHeldUser" else _STATES.get(state, JobState.FAILED))

    def control(self, number: str, action: str) -> None:
        assert action == JobControlAction.TERMINATE
        _run("scancel", number)


def _run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, start_new_session=True, **options)
