"""Jobs as squeue shows them."""

from __future__ import annotations

from dataclasses import dataclass

_FIELD_END, _JOB_END = "\x1f", "\x1e"

# In the order of the fields of `Job`. The last one is free text, and may hold lines.
_COLUMNS = (
    "JobArrayID:40",
    "Name:300",
    "Partition:40",
    "State:20",
    "Reason:200",
    "NodeList:100",
    "RestartCnt:10",
    "Comment:1000",
)

LIST_ALL = (
    "squeue",
    "--states=all",
    "--array",
    "--noheader",
    "--sort=i",
    f"--Format={f'{_FIELD_END},'.join(_COLUMNS)}{_JOB_END}",
)
"""The command that lists all jobs, in the order of their numbers, for `parse`."""


@dataclass(frozen=True)
class Job:
    """One job, or one part of an array of jobs."""

    id: str
    name: str
    partition: str
    state: str
    reason: str
    nodes: str
    """In Slurm's notation, for instance `cpu[1-2]`; empty while the job has none."""
    restarts: int
    """How many times it was requeued."""
    comment: str

    @property
    def number(self) -> int:
        """The number of the job, or of the array to which it belongs."""
        return int(self.id.partition("_")[0])


def parse(listing: str) -> list[Job]:
    return [_job(record) for record in listing.split(_JOB_END)[:-1]]


def _job(record: str) -> Job:
    values = [value.strip() for value in record.split(_FIELD_END)]
    id, name, partition, state, reason, nodes, restarts, comment = values
    return Job(id, name, partition, state, reason, nodes, int(restarts), "" if comment == "(null)" else comment)
