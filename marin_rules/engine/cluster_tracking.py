"""What the executor remembers of the jobs that it has sent to a cluster, and which of them are its own."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from marin_rules.clusters.patience import Refusals
from marin_rules.clusters.policy import History
from marin_rules.clusters.protocol import ClusterJob
from marin_rules.plans.frozen import FrozenStep
from marin_rules.storage.leases.lease import Lease


@dataclass
class Track:
    """How it stands with one of Snakemake's jobs in this run."""

    step: FrozenStep | None
    """None for a group of jobs, which has no status of its own."""

    history: History
    lease: Lease | None = None
    """Watches a step that is under way elsewhere; None once it has a job of ours."""

    turn: Lease | None = None
    """Watches another driver that is about to submit the step's job."""

    refusals: Refusals | None = None
    """The cluster does not take its job, and it is not known whether it ever will."""

    not_before: float | None = None
    """When to try to submit its job, by the executor's clock; None once it has one, or waits for something else."""

    may_be_queued: bool = False
    """A submission got no answer, and the queue was not looked at since: its job may be there."""

    foreign_job: ClusterJob | None = None
    """The job of another run that we wait for; None if the job is ours, or has ended."""

    @property
    def name(self) -> str:
        return self.history.name


def is_ours_to_cancel(job_run: str, own_run: str, driver_is_gone: bool | None) -> bool:
    """Whether a job that was found is to be ended along with this run.

    That of a run whose driver is known to be dead is: nobody else will. One whose run is not known here (None: another
    state folder, another machine's) may well have its driver, and is not.
    """
    return job_run == own_run or driver_is_gone is True


@dataclass
class OwnJobs:
    """The jobs that this run has submitted or taken over, while they live: they are cancelled with it."""

    _ids: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    closed: threading.Event = field(default_factory=threading.Event)
    """The run was cancelled: nothing more is submitted."""

    def add(self, number: str) -> bool:
        """False if the run was cancelled meanwhile."""
        with self._lock:
            self._ids.add(number)
            return not self.closed.is_set()

    def discard(self, number: str | None) -> None:
        with self._lock:
            self._ids.discard(number or "")

    def close(self) -> set[str]:
        """No more from now on; returns all that there are."""
        with self._lock:
            self.closed.set()
            return set(self._ids)


class Clock:
    """The time that patience is measured by. Tests have their own."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Until the event, but no longer than that."""
        event.wait(seconds)
