"""Which elements of arrays a person has cancelled before they began.

Slurm forgets such an element at once: squeue lists it no more, and sacct never hears of it. One that did begin has a
line of its own, even for some time after its end (`MinJobAge`). So an element that was waiting in one answer of squeue
and is not in the next, which came within that time and has other parts of its array, was cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from marin_rules.clusters.protocol import ClusterJob, JobState


class WaitingElements:
    """Remembers one answer of squeue until the next. Not thread-safe."""

    def __init__(self) -> None:
        self._waiting: Mapping[str, ClusterJob] = {}
        self._seen = 0.0
        self._cancelled: dict[str, ClusterJob] = {}

    def cancelled_by(
        self, jobs: Mapping[str, ClusterJob], now: float, listed_seconds: Callable[[], float]
    ) -> Mapping[str, ClusterJob]:
        """All that were cancelled before they began, as far as the answers up to this one show.

        `listed_seconds` is asked only if an element is missing. If it raises, nothing is remembered of this answer.
        """
        missing = self._missing_in(jobs)
        if missing and now - self._seen < listed_seconds():
            self._cancelled |= {job.id: _as_cancelled(job) for job in missing}
        self._waiting = {
            job.id: job for job in jobs.values() if job.element is not None and job.state is JobState.WAITING
        }
        self._seen = now
        return self._cancelled

    def _missing_in(self, jobs: Mapping[str, ClusterJob]) -> list[ClusterJob]:
        missing = [job for number, job in self._waiting.items() if number not in jobs]
        arrays = {job.array or job.id for job in jobs.values()} if missing else set()
        return [job for job in missing if job.array in arrays]


def _as_cancelled(job: ClusterJob) -> ClusterJob:
    return replace(job, state=JobState.CANCELLED, word="CANCELLED", reason="")
