"""Slurm's queue: sbatch takes jobs, squeue tells of them, and sacct of those that squeue has forgotten.

A job of ours carries its tag in its comment. So a run that was started anew finds the jobs of the one before it, and
people can be shown steps instead of numbers.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from marin_rules.clusters.protocol import JOB, ClusterError, ClusterJob, JobRequest, JobTag
from marin_rules.clusters.slurm.commands import run_command, user_name
from marin_rules.clusters.slurm.reasons import advice_about
from marin_rules.clusters.slurm.states import state_of
from marin_rules.clusters.slurm.submission import submit
from marin_rules.units import parse_clock

NAME = "slurm"

_FIELD_END, _JOB_END = "\x1f", "\x1e"
# The comment is free text, and comes last.
_COLUMNS = ("JobID:20", "State:20", "Reason:200", "NodeList:1000", "TimeUsed:30", "RestartCnt:10", "exit_code:20")
_SQUEUE_FORMAT = f"{_FIELD_END},".join([*_COLUMNS, "Comment:1000"]) + _JOB_END
_SACCT_FORMAT = "JobIDRaw,State,Reason,NodeList,Elapsed,ExitCode"
_QUERY_SECONDS = 20.0


class SlurmQueue:
    """The queue of the cluster whose commands are on this machine. See `protocol.JobQueue`."""

    cluster = NAME
    title = "Slurm"

    def submit(self, request: JobRequest) -> str:
        return submit(request)

    def jobs(self) -> dict[str, ClusterJob]:
        answer = run_command(
            "squeue", "--noheader", "--states=all", f"--user={user_name()}", f"--Format={_SQUEUE_FORMAT}",
            timeout=_QUERY_SECONDS,
        )  # fmt: skip
        jobs = [_from_squeue(record) for record in answer.split(_JOB_END)[:-1]]
        return {job.id: job for job in jobs if job is not None}

    def look(self, ids: Sequence[str]) -> dict[str, ClusterJob]:
        if not ids:
            return {}
        jobs = self.jobs()
        return {**jobs, **_forgotten([number for number in ids if number not in jobs])}

    def cancel(self, ids: Sequence[str]) -> None:
        if ids:
            run_command("scancel", "--quiet", *ids)

    def log_of(self, log: str, job: str) -> str:
        return log.replace(JOB, job)

    def advice(self, job: ClusterJob) -> str | None:
        return advice_about(job.reason, job.id)

    def cancel_command(self, ids: Sequence[str]) -> str:
        return f"scancel {' '.join(ids)}"

    def close(self) -> None:
        """Nothing is open."""


def _from_squeue(record: str) -> ClusterJob | None:
    """The job in a line of squeue; None for what is no line of it: the rest of a comment that has our separators."""
    values = [value.strip() for value in record.split(_FIELD_END, len(_COLUMNS))]
    if len(values) <= len(_COLUMNS) or not values[0].isdecimal():
        return None
    number, word, reason, nodes, elapsed, restarts, status, comment = values
    return ClusterJob(
        NAME,
        number,
        state_of(word),
        word,
        reason=_word(reason),
        nodes=_word(nodes),
        seconds=parse_clock(elapsed),
        restarts=int(restarts) if restarts.isdecimal() else 0,
        exit_code=_exit_code(status),
        tag=JobTag.parse(comment),
    )


def _forgotten(ids: Sequence[str]) -> Mapping[str, ClusterJob]:
    """What the accounting knows of jobs that squeue has forgotten; nothing where there is no accounting."""
    if not ids or shutil.which("sacct") is None:
        return {}
    try:
        answer = run_command(
            "sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={','.join(ids)}",
            f"--format={_SACCT_FORMAT}",
            timeout=_QUERY_SECONDS,
        )  # fmt: skip
    except ClusterError:
        return {}
    found = (_from_sacct(line) for line in answer.splitlines())
    # What only the accounting takes for alive was lost by a controller, and will never end.
    return {job.id: job for job in found if job is not None and not job.is_live}


def _from_sacct(line: str) -> ClusterJob | None:
    values = line.split("|")
    if len(values) != 6:
        return None
    number, state, reason, nodes, elapsed, status = values
    word = state.split(" ")[0]  # "CANCELLED by 1000"
    return ClusterJob(
        NAME,
        number,
        state_of(word),
        word,
        reason=_word(reason),
        nodes=_word(nodes),
        seconds=parse_clock(elapsed),
        exit_code=_exit_code(status),
    )


def _word(text: str) -> str:
    return "" if text in ("None", "(null)", "None assigned", "N/A") else text


def _exit_code(text: str) -> int | None:
    """Of sacct, `75:0`; of squeue, what wait(2) returned: `19200`. None for a job that a signal ended."""
    code, _, number = text.partition(":")
    if not code.isdecimal():
        return None
    if number:
        return int(code) if number == "0" else None
    return None if int(code) & 0x7F else int(code) >> 8
