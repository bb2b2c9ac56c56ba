"""Slurm's queue: sbatch accepts jobs, squeue reports on them, and sacct on those that squeue has forgotten.

A job of ours carries its tag in its comment. So a restarted run finds the jobs of the previous one, and people can be
shown steps instead of numbers. What waits in an array costs as little as one job, however many elements that are.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterable, Mapping, Sequence

from marin_rules.clusters.protocol import JOB, ClusterError, ClusterJob, Extra, JobRequest, RefusedError, element_id
from marin_rules.clusters.slurm import array_indices
from marin_rules.clusters.slurm.commands import own_environment, run_command, user_name
from marin_rules.clusters.slurm.configuration import Limits, read_configuration
from marin_rules.clusters.slurm.listing import (
    NAME,
    SACCT_OPTIONS,
    SQUEUE_OPTIONS,
    WHOLE_LISTS,
    read_sacct,
    read_squeue,
)
from marin_rules.clusters.slurm.reasons import advice_about
from marin_rules.clusters.slurm.submission import submit
from marin_rules.clusters.slurm.waiting_elements import WaitingElements

_QUERY_SECONDS = 20.0


class SlurmQueue:
    """The queue of the cluster whose commands are on this machine. See `protocol.JobQueue`."""

    cluster = NAME
    title = "Slurm"

    def __init__(self) -> None:
        self._known_limits: Limits | None = None
        self._waiting = WaitingElements()
        self._looking = threading.Lock()

    @property
    def most_elements(self) -> int:
        return self._limits().most_elements

    def deal(self, tasks: Sequence[int]) -> list[list[int]]:
        limits = self._limits()
        if not limits.most_elements:
            raise RefusedError("this Slurm accepts no job arrays (its MaxArraySize is 0)")
        return array_indices.deal(tasks, most_span=limits.most_elements, most_count=limits.most_tasks)

    def submit(self, request: JobRequest) -> str:
        return submit(request)

    def jobs(self) -> dict[str, ClusterJob]:
        with self._looking:  # Of two answers, the later one must be recognised as later.
            jobs = read_squeue(_ask("squeue", *SQUEUE_OPTIONS, f"--user={user_name()}"))
            cancelled = self._waiting.cancelled_by(jobs, time.monotonic(), lambda: self._limits().listed_seconds)
            return {**cancelled, **jobs}

    def look(self, ids: Sequence[str]) -> dict[str, ClusterJob]:
        if not ids:
            return {}
        jobs = self.jobs()
        return {**jobs, **_forgotten([number for number in ids if number not in jobs])}

    def cancel(self, ids: Sequence[str]) -> None:
        if ids:
            run_command("scancel", "--quiet", *_in_few_words(ids))

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
        return advice_about(job.reason, job.id)

    def cancel_command(self, ids: Sequence[str]) -> str:
        return f"scancel {' '.join(_in_few_words(ids))}"

    def close(self) -> None:
        """Nothing is open."""

    def _limits(self) -> Limits:
        """Requested once: an administrator who changes them restarts the controller."""
        if self._known_limits is None:
            self._known_limits = Limits.of(read_configuration())
        return self._known_limits


def _forgotten(ids: Sequence[str]) -> Mapping[str, ClusterJob]:
    """What the accounting knows about jobs that squeue has forgotten; nothing if there is no accounting."""
    if not ids or shutil.which("sacct") is None:
        return {}
    numbers = dict.fromkeys(_split(number)[0] for number in ids)  # Of arrays, all elements: they may be thousands.
    try:
        found = read_sacct(_ask("sacct", *SACCT_OPTIONS, f"--jobs={','.join(numbers)}"))
    except ClusterError:
        return {}
    # A job that only the accounting considers alive was lost by a controller, and will never end.
    return {number: found[number] for number in ids if number in found and not found[number].is_live}


def _ask(*words: str) -> str:
    return run_command(*words, timeout=_QUERY_SECONDS, environment=own_environment() | WHOLE_LISTS)


def _in_few_words(ids: Iterable[str]) -> list[str]:
    """Jobs for scancel, the elements of an array in one word: each word is a request to the controller."""
    elements: dict[str, list[int]] = {}
    words: dict[str, None] = {}
    for number in ids:
        array, element = _split(number)
        if element is None:
            words[array] = None
        else:
            elements.setdefault(array, []).append(element)
    return [*words, *(_elements_word(array, sorted(set(indices))) for array, indices in elements.items())]


def _elements_word(array: str, indices: Sequence[int]) -> str:
    if len(indices) == 1:
        return element_id(array, indices[0])
    return f"{array}_[{array_indices.indices_text(indices)}]"


def _split(number: str) -> tuple[str, int | None]:
    """The number of a job, and the index of an element."""
    array, _, element = number.partition("_")
    return array, int(element) if element.isdecimal() else None
