"""What the executor remembers about the jobs that it has sent to a cluster, and which of them are its own."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from marin_rules.clusters.patience import Refusals
from marin_rules.clusters.policy import History
from marin_rules.clusters.protocol import ClusterJob
from marin_rules.plans.frozen import FrozenStep
from marin_rules.state.task_records import TaskRecord
from marin_rules.storage.leases.lease import Lease


@dataclass
class ArrayTrack:
    """The state of a step's tasks in this run."""

    round: int
    jobs: dict[int, str] = field(default_factory=dict)
    """Tasks that have a job of the cluster -> its id."""

    elsewhere: dict[int, Lease] = field(default_factory=dict)
    """Tasks held by something other than a job that we know -> their leases."""

    histories: dict[int, History] = field(default_factory=dict)
    done: dict[int, TaskRecord] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    """Tasks that no further job is submitted for -> why."""

    may_retry: bool = True
    """False once a task has failed in a way that no further attempt would fix: somebody cancelled it."""

    arrays: set[str] = field(default_factory=set)
    """The job arrays that are this run's to cancel."""

    log: str = ""
    """Where its jobs print to, as in their requests."""

    running: int = 0
    told: str = ""
    tell_at: float = 0.0
    is_started: bool = False

    def left(self, tasks: int) -> list[int]:
        """Tasks that have to be done, and that nobody is working on."""
        taken = (self.jobs, self.elsewhere, self.done, self.failed)
        return [task for task in range(tasks) if not any(task in group for group in taken)]


@dataclass
class Track:
    """The state of one of Snakemake's jobs in this run."""

    step: FrozenStep | None
    """None for a group of jobs, which has no status of its own."""

    history: History
    lease: Lease | None = None
    """Watches a step that is active elsewhere; None once it has a job of ours."""

    turn: Lease | None = None
    """Watches another driver that is about to submit the step's job."""

    refusals: Refusals | None = None
    """The cluster does not accept its job, and it is not known whether it ever will."""

    not_before: float | None = None
    """When to try to submit its job, by the executor's clock; None once it has one, or waits for something else."""

    may_be_queued: bool = False
    """A submission got no answer, and the queue was not checked since: its job may be there."""

    foreign_job: ClusterJob | None = None
    """The job of another run that we wait for; None if the job is ours, or has ended."""

    array: ArrayTrack | None = None
    """The state of its tasks, for an array step that was begun."""

    @property
    def name(self) -> str:
        return self.history.name


def is_ours_to_cancel(job_run: str, own_run: str, driver_is_gone: bool | None) -> bool:
    """Whether a job that was found should end along with this run.

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
        """Accept no more from now on; returns all that there are."""
        with self._lock:
            self.closed.set()
            return set(self._ids)


class Clock:
    """The time that patience is measured by. Tests have their own."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Wait for the event, but no longer than that."""
        event.wait(seconds)
