"""What squeue and sacct print about jobs, and how it is read: pure.

Both print the elements of an array that have not begun in one line, with their indices (`123_[3-9,20%5]`), and all
others one by one. In an array of ours each of these is a job; arrays of the user's other programs are not split up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from marin_rules.clusters.protocol import BusyError, ClusterJob, JobTag, element_id
from marin_rules.clusters.slurm.array_indices import parse_indices
from marin_rules.clusters.slurm.states import state_of
from marin_rules.units import parse_clock

NAME = "slurm"

_FIELD_END, _JOB_END = "\x1f", "\x1e"
_COLUMNS = ("ArrayJobID", "ArrayTaskID", "State", "Reason", "NodeList", "TimeUsed", "RestartCnt", "exit_code")
# The size 0 stands for as many characters as there are. The comment is free text, and comes last.
SQUEUE_FORMAT = f"{_FIELD_END},".join(f"{column}:0" for column in (*_COLUMNS, "Comment")) + _JOB_END
SQUEUE_OPTIONS = (
    "--noheader",
    "--states=all",
    "--array-unique",  # Otherwise elements that wait again look like those that have not begun: without their restarts.
    f"--Format={SQUEUE_FORMAT}",
)
SACCT_OPTIONS = (
    "--noheader",
    "--allocations",
    "--parsable2",
    "--format=JobID,JobIDRaw,State,Reason,NodeList,Elapsed,ExitCode",
)
WHOLE_LISTS = {"SLURM_BITSTR_LEN": "0"}
"""The environment in which both print all indices of an array. They would leave out what exceeds 64 characters."""

_NO_ARRAY = "N/A"


def read_squeue(answer: str) -> dict[str, ClusterJob]:
    """All jobs by their ids. Raises `BusyError` if it does not report all."""
    return {job.id: job for record in answer.split(_JOB_END)[:-1] for job in _from_squeue(record)}


def read_sacct(answer: str) -> dict[str, ClusterJob]:
    return {job.id: job for line in answer.splitlines() for job in _from_sacct(line)}


def _from_squeue(record: str) -> Iterator[ClusterJob]:
    """The jobs in a line; none for a false line: the rest of a comment that contains our separators."""
    values = [value.strip() for value in record.split(_FIELD_END, len(_COLUMNS))]
    if len(values) <= len(_COLUMNS) or not values[0].isdecimal():
        return
    number, indices, word, reason, nodes, elapsed, restarts, status, comment = values
    tag = JobTag.parse(comment.partition(" ")[0])  # A comment of the user's own may follow.
    count = int(restarts) if restarts.isdecimal() else 0
    facts = _facts(word, reason, nodes, elapsed, status)
    for id, element in _parts(number, indices, in_full=tag is not None):
        yield ClusterJob(NAME, id, restarts=count, tag=tag, element=element, **facts)


def _from_sacct(line: str) -> Iterator[ClusterJob]:
    values = line.split("|")
    if len(values) != 7:
        return
    id, number, state, *rest = values
    array, _, indices = id.partition("_")
    facts = _facts(state.split(" ")[0], *rest)  # "CANCELLED by 1000"
    for each, element in _parts(array if indices else number, indices.strip("[]") or _NO_ARRAY, in_full=True):
        yield ClusterJob(NAME, each, element=element, **facts)


def _facts(word: str, reason: str, nodes: str, elapsed: str, status: str) -> dict[str, Any]:
    """What both report in the same form, for all jobs that one line stands for."""
    return {
        "state": state_of(word),
        "word": word,
        "reason": _word(reason),
        "nodes": _word(nodes),
        "seconds": parse_clock(elapsed),
        "exit_code": _exit_code(status),
    }


def _parts(number: str, indices: str, *, in_full: bool) -> Iterator[tuple[str, int | None]]:
    """The ids and indices of the jobs that one line stands for."""
    if indices.isdecimal():
        yield element_id(number, int(indices)), int(indices)
    elif indices == _NO_ARRAY or not in_full:
        yield number, None
    else:
        try:
            elements = parse_indices(indices)
        except ValueError as error:
            raise BusyError(f"Slurm does not report all elements of array {number}: {error}") from error
        yield from ((element_id(number, element), element) for element in elements)


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
