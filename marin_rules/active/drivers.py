"""Submitted drivers, and the state of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from marin_rules.active.queues import LiveJobs
from marin_rules.clusters.protocol import ClusterJob, JobState
from marin_rules.state.driver_record import STOPPED_CODE, DriverEnd, DriverRecord, Holder

_SUBMITTING_SECONDS = 600.0
"""How long until a driver that no process became is over: its submission was killed."""


@dataclass(frozen=True)
class ActiveDriver:
    """A driver, as it was found."""

    record: DriverRecord
    holder: Holder | None
    end: DriverEnd | None = None
    job: ClusterJob | None = None
    """Its job, while that lives."""

    is_alive: bool = False
    """Whether it runs or waits to, as far as can be told."""

    trouble: str | None = None
    """Why nothing else is known of it: its files cannot be read now."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, with or without a record of it."""
        return self.end is not None or not self.is_alive

    @property
    def state(self) -> str:
        """In a word or two for people."""
        if self.trouble is not None:
            return f"UNKNOWN ({self.trouble})"
        if self.end is not None:
            return "STOPPED" if self.end.stopped else f"ENDED (exit code {self.end.exit_code})"
        if not self.is_alive:
            return "STOPPED" if self.record.is_asked_to_stop else "GONE (killed before it could say how the run ended)"
        if self.holder is None:
            return "SUBMITTING"
        if self.job is None:
            return "RUNNING"
        waits = self.job.state is JobState.WAITING and self.job.reason
        return f"{self.job.word} ({self.job.reason})" if waits else self.job.word

    @property
    def exit_code(self) -> int:
        """Of a run that is over."""
        if self.end is not None:
            return self.end.exit_code
        return STOPPED_CODE if self.record.is_asked_to_stop else 1


def look_at_drivers(records: Sequence[DriverRecord], answer: LiveJobs, now: float) -> list[ActiveDriver]:
    """The states of these drivers, given the answers of the clusters; `now` is the wall clock."""
    jobs = {(job.cluster, job.id): job for job in answer.jobs}
    found = []
    for record in records:
        # The end is read after the job was queried: a driver records it first.
        try:
            holder, end = record.holder(), record.end()
        except (OSError, ValueError, TypeError) as error:  # No answer, or files of somebody else's.
            found.append(ActiveDriver(record, None, is_alive=True, trouble=str(error)))
            continue
        job = None if holder is None or holder.job is None else jobs.get((str(holder.cluster), holder.job))
        found.append(ActiveDriver(record, holder, end, job, _is_alive(record, holder, job, answer, now)))
    return found


def _is_alive(
    record: DriverRecord, holder: Holder | None, job: ClusterJob | None, answer: LiveJobs, now: float
) -> bool:
    if holder is None:
        return now - record.submitted < _SUBMITTING_SECONDS
    if holder.owner is not None:
        return not holder.owner.is_dead_here()
    return job is not None or holder.cluster not in answer.answered
