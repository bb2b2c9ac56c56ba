"""The queues of all clusters that can be asked from this machine, asked as one.

A job is identified by its cluster and its id: two clusters may give the same number to two jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from marin_rules.clusters.open import clusters_here
from marin_rules.clusters.protocol import BusyError, ClusterError, ClusterJob, Extra, JobQueue
from marin_rules.errors import MarinRulesError
from marin_rules.settings.cluster_file import cluster_name
from marin_rules.state.run_registry import registered_runs

type JobName = tuple[str, str]
"""The name of a cluster, and the id of a job there."""


def name_of(job: ClusterJob) -> JobName:
    return job.cluster, job.id


def job_words(names: Iterable[JobName]) -> str:
    """Jobs for people: their clusters, each with its numbers."""
    by_cluster: dict[str, list[str]] = {}
    for cluster, number in names:
        by_cluster.setdefault(cluster, []).append(number)
    return ", ".join(f"{cluster} job {', '.join(numbers)}" for cluster, numbers in by_cluster.items())


@dataclass(frozen=True)
class LiveJobs:
    """The jobs of ours that run or wait, as far as their clusters answered."""

    jobs: Sequence[ClusterJob] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
    """The clusters that did not answer, and why."""

    answered: frozenset[str] = frozenset()
    """The clusters that did."""


class Queues:
    """What the clusters say of our jobs."""

    def __init__(self, queues: Iterable[JobQueue], closed: Mapping[str, str] | None = None) -> None:
        """`closed`: clusters that are here and whose queues could not be opened, and why."""
        self._queues = {queue.cluster: queue for queue in queues}
        self._closed = dict(closed or {})

    @classmethod
    def open(cls) -> Self:
        """The queues of all clusters that can be asked from here. One that cannot be opened stops nothing.

        The cluster file that was chosen is that of `MARIN_CLUSTER`, or else of the newest run that names one.
        """
        queues, closed = [], {}
        chosen = cluster_name() or next((run.cluster for run in reversed(registered_runs()) if run.cluster), None)
        for cluster in clusters_here(chosen):
            try:
                queues.append(cluster.open_queue(chosen))
            except MarinRulesError as error:
                closed[cluster.name] = str(error)
        return cls(queues, closed)

    def close(self) -> None:
        for queue in self._queues.values():
            queue.close()

    def can_ask(self, cluster: str) -> bool:
        """Whether a cluster is one of ours, though it may be silent now."""
        return cluster in self._queues or cluster in self._closed

    def title(self, cluster: str) -> str:
        """What people call a cluster."""
        queue = self._queues.get(cluster)
        return cluster if queue is None else queue.title

    def live_jobs(self) -> LiveJobs:
        """Everything that runs or waits. A cluster that does not answer is not an error: the rest can still be seen."""
        jobs: list[ClusterJob] = []
        silent = dict(self._closed)
        for name, queue in self._queues.items():
            try:
                jobs += [job for job in queue.jobs().values() if job.is_live]
            except ClusterError as error:
                silent[name] = str(error)
        return LiveJobs(jobs, silent, frozenset(self._queues.keys() - silent.keys()))

    def extras(self) -> tuple[list[tuple[str, Extra]], dict[str, str]]:
        """What workers have created beside their jobs, each with its cluster; and which clusters do not say."""
        found: list[tuple[str, Extra]] = []
        silent = dict(self._closed)
        for name, queue in self._queues.items():
            try:
                found += [(name, extra) for extra in queue.extras()]
            except ClusterError as error:
                silent[name] = str(error)
        return found, silent

    def remove(self, cluster: str, extra: Extra) -> None:
        self._queues[cluster].remove(extra)

    def cancel(self, names: Collection[JobName]) -> None:
        """Ask for the end of jobs. A cluster that refuses does not stop the others from being asked."""
        errors = []
        for cluster, ids in _by_cluster(names).items():
            try:
                self._queues[cluster].cancel(ids)
            except ClusterError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def last_lines(self, job: JobName, count: int) -> Sequence[str]:
        """The last lines of a job's own output that its cluster keeps; none if it keeps none. Raises `ClusterError`."""
        cluster, number = job
        queue = self._queues.get(cluster)
        return () if queue is None else queue.last_lines(number, count)

    def look(self, names: Collection[JobName]) -> tuple[dict[JobName, ClusterJob], dict[str, str]]:
        """The states of these jobs, without unknown ones; and which clusters are too busy to answer."""
        found: dict[JobName, ClusterJob] = {}
        busy: dict[str, str] = {}
        for cluster, ids in _by_cluster(names).items():
            try:
                answer = self._queues[cluster].look(ids)
            except BusyError as error:
                busy[cluster] = str(error)
            else:
                found |= {(cluster, number): answer[number] for number in ids if number in answer}
        return found, busy


def _by_cluster(names: Iterable[JobName]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for cluster, number in names:
        grouped.setdefault(cluster, []).append(number)
    return grouped
