"""The jobs that Slurm knows of: asked of squeue, and of sacct for those that squeue has forgotten.

A job of ours carries a tag in its comment: which run submitted it, and for which step. So a run that was started anew
finds the jobs of the one before it, and people can be shown steps instead of numbers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from marin_rules.clusters.protocol import JobTag
from marin_rules.clusters.slurm.commands import SlurmError, run_command, user_name
from marin_rules.clusters.slurm.states import is_live

_FIELD_END, _JOB_END = "\x1f", "\x1e"
# In the order of the fields of `SlurmJob`. The comment is free text, and comes last.
_COLUMNS = ("JobID:20", "State:20", "Reason:200", "NodeList:1000", "TimeUsed:30", "Partition:100", "RestartCnt:10")
_SQUEUE_FORMAT = f"{_FIELD_END},".join([*_COLUMNS, "Comment:1000"]) + _JOB_END
_QUERY_SECONDS = 20.0


Tag = JobTag


@dataclass(frozen=True)
class SlurmJob:
    """A job, as Slurm last told of it."""

    id: str
    state: str
    """Slurm's own word, such as PENDING."""

    reason: str = ""
    nodes: str = ""
    elapsed: str = ""
    partition: str = ""
    restarts: int = 0
    """How often Slurm itself has started it again, as far as squeue tells."""

    tag: Tag | None = None

    @property
    def is_live(self) -> bool:
        """It runs, or is going to."""
        return is_live(self.state)


def our_jobs() -> dict[str, SlurmJob]:
    """All jobs of this user that squeue knows, by their id; those that ended lately are among them."""
    answer = run_command(
        "squeue", "--noheader", "--states=all", f"--user={user_name()}", f"--Format={_SQUEUE_FORMAT}",
        timeout=_QUERY_SECONDS,
    )  # fmt: skip
    jobs = [_from_squeue(record) for record in answer.split(_JOB_END)[:-1]]
    return {job.id: job for job in jobs if job is not None}


def _from_squeue(record: str) -> SlurmJob | None:
    """The job in a line of squeue; None for what is no line of it: the rest of a comment that has our separators."""
    values = [value.strip() for value in record.split(_FIELD_END, len(_COLUMNS))]
    if len(values) <= len(_COLUMNS) or not values[0].isdecimal():
        return None
    number, state, reason, nodes, elapsed, partition, restarts, comment = values
    count = int(restarts) if restarts.isdecimal() else 0
    return SlurmJob(number, state, _word(reason), _word(nodes), elapsed, partition, count, Tag.parse(comment))


def forgotten_jobs(ids: Sequence[str]) -> dict[str, SlurmJob]:
    """What the accounting knows of jobs that squeue has forgotten; nothing where there is no accounting."""
    if not ids or shutil.which("sacct") is None:
        return {}
    try:
        answer = run_command(
            "sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={','.join(ids)}",
            "--format=JobIDRaw,State,Reason,NodeList,Elapsed,Partition",
            timeout=_QUERY_SECONDS,
        )  # fmt: skip
    except SlurmError:
        return {}
    jobs = {}
    for line in answer.splitlines():
        parts = line.split("|")
        if len(parts) == 6:
            number, state, reason, nodes, elapsed, partition = parts
            # "CANCELLED by 1000"
            jobs[number] = SlurmJob(number, state.split(" ")[0], _word(reason), _word(nodes), elapsed, partition)
    # What only the accounting takes for alive was lost by a controller, and will never end.
    return {number: job for number, job in jobs.items() if not job.is_live}


def _word(text: str) -> str:
    return "" if text in ("None", "(null)", "None assigned", "N/A") else text


def live_job_of(tag: Tag, jobs: Iterable[SlurmJob]) -> SlurmJob | None:
    """A job that works on the same step, or waits to."""
    return next((job for job in jobs if job.is_live and job.tag is not None and job.tag.is_same_step(tag)), None)


def cancel(ids: Sequence[str]) -> None:
    """Ask Slurm to end jobs. Those that have ended already are no error."""
    if ids:
        run_command("scancel", "--quiet", *ids)
