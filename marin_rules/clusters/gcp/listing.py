"""Jobs and tasks as Batch reports them, in neutral terms: the only place that reads Google's messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from marin_rules.clusters.gcp import names
from marin_rules.clusters.gcp.job_variables import ELEMENT_VARIABLE, SLICES_VARIABLE
from marin_rules.clusters.gcp.slice_order import SliceOrder
from marin_rules.clusters.gcp.states import Event, element_state, ending_of, job_state, place_of, shortage_of, word_of
from marin_rules.clusters.protocol import ClusterJob, JobState, element_id

NAME = "gcp"

FIELDS = (
    "jobs.name,jobs.uid,jobs.labels,jobs.status,jobs.create_time,jobs.task_groups.task_count,"
    "jobs.task_groups.task_environments,next_page_token,unreachable"
)
"""The fields requested in a list of jobs: without scripts of 12 KB, a thousand of them are 0.3 MB instead of 13. No
real project has confirmed that Batch honours it; only the size of its answers depends on that."""


def short_id(job: Any) -> str:
    """The id of a job, without project and region."""
    return str(job.name).rpartition("/")[2]


def is_array(job: Any) -> bool:
    return names.ARRAY in job.labels


def has_ended(job: Any) -> bool:
    return job.status.state.name in ("SUCCEEDED", "FAILED", "CANCELLED")


def has_slices(job: Any) -> bool:
    """Whether its worker has TPU slices, or should get some."""
    return names.ACCELERATOR in job.labels


def slice_place(job: Any) -> str | None:
    """Where the worker of such a job leaves messages; None if its definition does not say."""
    variables = job.task_groups[0].task_spec.environment.variables
    return SliceOrder.from_json(variables[SLICES_VARIABLE]).own_place if SLICES_VARIABLE in variables else None


def element_numbers(job: Any) -> list[int]:
    """Of an array: the number of the element that each of its tasks is, by the task's index."""
    group = job.task_groups[0]
    numbers = [int(one.variables[ELEMENT_VARIABLE]) for one in group.task_environments]
    return numbers or list(range(group.task_count))


def read_job(job: Any, tasks: Iterable[Any] = (), waits_for: str = "") -> ClusterJob:
    """A job that is not an array. Only its tasks show how it failed: of several machines, a lost one explains why the
    others failed. A running one may still be waiting for something else."""
    by_task = [_events(task) for task in tasks]
    events = [event for found in by_task for event in found]
    endings = [ending_of(found) for found in by_task]
    ending = next((found for found in endings if found.is_interruption), ending_of(events))
    word = job.status.state.name
    return ClusterJob(
        NAME,
        short_id(job),
        JobState.WAITING if waits_for else job_state(word, ending),
        "WAITING" if waits_for else word_of(word, ending),
        reason=shortage_of(_events(job)) if word in ("QUEUED", "SCHEDULED") else waits_for,
        nodes=place_of(events),
        seconds=_seconds(job),
        exit_code=ending.own_code,
        tag=names.tag_of(job.labels),
    )


def read_elements(job: Any, tasks: Sequence[Any]) -> list[ClusterJob]:
    """The elements of an array."""
    by_index = {int(str(task.name).rpartition("/")[2]): task for task in tasks}
    tag, word = names.tag_of(job.labels), job.status.state.name
    reason = shortage_of(_events(job)) if word in ("QUEUED", "SCHEDULED") else ""
    found = []
    for index, number in enumerate(element_numbers(job)):
        task = by_index.get(index)
        events = [] if task is None else _events(task)
        task_word = None if task is None else task.status.state.name
        ending = ending_of(events)
        found.append(
            ClusterJob(
                NAME,
                element_id(short_id(job), number),
                element_state(word, task_word, ending),
                word_of(task_word or word, ending),
                reason=reason,
                nodes=place_of(events),
                exit_code=ending.own_code,
                tag=tag,
                element=number,
            )
        )
    return found


def _events(message: Any) -> list[Event]:
    return [
        Event(
            event.event_time.timestamp(),
            event.description,
            event.task_execution.exit_code if "task_execution" in event else None,
        )
        for event in message.status.status_events
    ]


def _seconds(job: Any) -> float | None:
    duration = job.status.run_duration
    return duration.total_seconds() if duration else None
