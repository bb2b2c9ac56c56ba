"""What is left of runs without a live driver: jobs, and what their workers have created beside them. Pure.

A job whose driver died is not idle: it finishes its step, and the next run finds it. Reaping is for those who do not
want that. A job that the next run has already found is not left over, although its tag still names the run that
submitted it. Something beside a job is left over when no job of its step is alive, because that job's worker would have
deleted it, and when nobody waits for the step, whose next job would use it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from marin_rules.clusters.protocol import ClusterJob, Extra, JobTag, live_jobs_of


@dataclass(frozen=True)
class Leftover:
    """A job or something beside one, and why it is not needed."""

    cluster: str
    what: ClusterJob | Extra
    why: str
    goes_with_job: bool = False
    """Whether it is beside a job that is itself left over: while that is alive, its worker would create another."""

    @property
    def id(self) -> str:
        return self.what.id

    @property
    def words(self) -> str:
        """What it is, for people."""
        if isinstance(self.what, Extra):
            return f"{self.what.words} ({self.what.state})"
        return f"{self.cluster} job {self.what.id} ({self.what.word})"

    @property
    def step(self) -> str:
        return "" if self.what.tag is None else self.what.tag.step


def leftovers(
    jobs: Sequence[ClusterJob],
    extras: Iterable[tuple[str, Extra]],
    dead: Collection[str],
    living: Collection[str],
    *,
    awaited: Collection[tuple[str, str]] = (),
    unknown_too: bool = False,
) -> list[Leftover]:
    """What is left of runs in `dead`; with `unknown_too` also of those that are neither dead nor `living`.

    `awaited` are the steps, by key and place, that living runs wait for. A run that this machine does not know may well
    be driven from another one.
    """
    found: list[Leftover] = []
    for job in jobs:
        if job.tag is None or job.tag.is_driver or _is_awaited(job.tag, awaited):
            continue
        why = _why(job.tag, dead, living, unknown_too)
        if why is not None:
            found.append(Leftover(job.cluster, job, why))
    ending = {(left.cluster, left.id) for left in found}
    kept = [job for job in jobs if (job.cluster, job.id) not in ending]
    for cluster, extra in extras:
        if extra.tag is None or not (_is_awaited(extra.tag, awaited) or _live_jobs(extra.tag, cluster, kept)):
            goes_with_job = extra.tag is not None and bool(_live_jobs(extra.tag, cluster, jobs))
            why = "it goes with the job of its step" if goes_with_job else "no job of its step is left"
            found.append(Leftover(cluster, extra, why, goes_with_job))
    return found


def _is_awaited(tag: JobTag, awaited: Collection[tuple[str, str]]) -> bool:
    return (tag.step, tag.place) in awaited


def _live_jobs(tag: JobTag, cluster: str, jobs: Iterable[ClusterJob]) -> list[ClusterJob]:
    return live_jobs_of(tag, (job for job in jobs if job.cluster == cluster))


def _why(tag: JobTag, dead: Collection[str], living: Collection[str], unknown_too: bool) -> str | None:
    if tag.run in dead:
        return f"the driver of run {tag.run} is dead"
    if unknown_too and tag.run not in living:
        return f"this machine does not know run {tag.run}"
    return None
