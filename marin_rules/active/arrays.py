"""Arrays of jobs for people: thousands of elements are shown as one job, with how many elements are in which state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from marin_rules.clusters.protocol import ClusterJob, JobState

_STATES = (JobState.RUNNING, JobState.SUSPENDED, JobState.ENDING, JobState.WAITING)
"""An array is in the first of these that one of its elements is in."""


def by_array(jobs: Iterable[ClusterJob]) -> list[tuple[ClusterJob, Sequence[ClusterJob]]]:
    """Live jobs, in the order of the first of each array: a job and no elements, or an array as one job and its
    elements."""
    found: dict[tuple[str, str], list[ClusterJob]] = {}
    for job in jobs:
        found.setdefault((job.cluster, job.array or job.id), []).append(job)
    return [
        (same[0], ()) if (array := same[0].array) is None else (_as_one(array, same), same) for same in found.values()
    ]


def _as_one(array: str, elements: Sequence[ClusterJob]) -> ClusterJob:
    first = min(elements, key=lambda job: _STATES.index(job.state))
    machines = {job.nodes: None for job in elements if job.nodes}
    return replace(
        first,
        id=array,
        nodes=next(iter(machines)) if len(machines) == 1 else f"{len(machines)} nodes" if machines else "",
        seconds=max((job.seconds for job in elements if job.seconds is not None), default=None),
        element=None,
    )


def element_counts(elements: Iterable[ClusterJob]) -> dict[str, int]:
    """How many elements are in each state, by the cluster's own words, those with machines first."""
    ordered = sorted(elements, key=lambda job: _STATES.index(job.state))
    return dict(Counter(job.word for job in ordered))
