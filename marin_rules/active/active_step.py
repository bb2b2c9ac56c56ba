"""A step that runs, or waits in a cluster's queue, and its holder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from marin_rules.clusters.protocol import ClusterJob, JobState, JobTag
from marin_rules.state.recorded_job import RecordedJob
from marin_rules.state.task_records import TaskCounts
from marin_rules.storage.leases.record import LeaseRecord


@dataclass(frozen=True)
class StepAddress:
    """A step, by names that hold in every folder."""

    name: str
    key: str
    """Its `<name>-<hash>`."""

    output_path: str | None
    """A whole path or a URL; None for the job of a run that is no longer recorded: only its worker knows."""

    runs: tuple[str, ...] = ()
    """The registered runs that want it."""

    place: str | None = None
    """What the tags of its jobs say of its output path, which may have been a relative one."""

    @property
    def where(self) -> str:
        """Distinguishes it from all other steps."""
        return self.output_path or f"{self.key}:{self.place}"

    def is_same(self, other: StepAddress) -> bool:
        """Whether both are at the same place, whichever runs they were found in."""
        if self.output_path is None or other.output_path is None:
            return (self.key, self.place) == (other.key, other.place)
        return self.output_path == other.output_path

    def is_of(self, tag: JobTag | None) -> bool:
        """Whether a job with this tag is for this step."""
        return tag is not None and tag.step == self.key and self.place in (None, tag.place)


@dataclass(frozen=True)
class ActiveStep:
    """A step with one of its holders: a worker, a job, or both."""

    step: StepAddress
    run: str
    """The run that works on it; it may be somebody else's."""

    seen_at: float
    """When we looked, in seconds since 1970."""

    lease: LeaseRecord | None = None
    job: ClusterJob | None = None
    """Of an array, all of its elements as one job."""

    recorded_job: RecordedJob | None = None
    """The cluster job that its worker is in, and that is the step's own."""

    attempt: int | None = None
    driver_is_gone: bool = False
    """Nobody is waiting for its end any more: its driver ended, and no other run needs the step."""

    elements: Sequence[ClusterJob] = ()
    """The elements of its array that run or wait."""

    tasks: TaskCounts | None = None
    """How far an array step is; None for any other step, or if that is not known."""

    @property
    def jobs(self) -> Sequence[ClusterJob]:
        """What its cluster knows it by: its job, or the elements of its array."""
        return self.elements or (() if self.job is None else (self.job,))

    @property
    def is_queued(self) -> bool:
        return self.job is not None and self.job.state is JobState.WAITING

    @property
    def node(self) -> str:
        """Where it runs, according to its cluster or else its worker; nothing for one that waits."""
        if self.job is not None and (self.is_queued or self.job.nodes):
            return self.job.nodes
        return "" if self.lease is None or self.lease.owner is None else self.lease.owner.host

    @property
    def seconds(self) -> float | None:
        """How long it has run, according to its cluster or else its worker; None for one that waits."""
        if self.is_queued:
            return None
        if self.job is not None and self.job.seconds is not None:
            return self.job.seconds
        return None if self.lease is None or self.lease.since is None else max(0.0, self.seen_at - self.lease.since)

    @property
    def silent_seconds(self) -> float | None:
        """How long its worker has been silent, if too long. Compares two clocks that may differ: for people only."""
        if self.lease is None:
            return None
        silent = self.seen_at - self.lease.timestamp
        return silent if silent > self.lease.lifetime else None


def name_in(key: str) -> str:
    """The name of the step that has this key."""
    return unquote(key).rpartition("-")[0] or key
