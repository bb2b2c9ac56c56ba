"""What Batch says about a job and its tasks, in neutral terms: pure.

A state is Batch's word; why a task ended is in its events. They are unordered, and a restarted task keeps its earlier
events: the newest by time decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from marin_rules.clusters.protocol import JobState

INTERRUPTIONS = frozenset((50001, 50002, 50003, 50006))
"""Exit codes of a task whose machine was preempted, fell silent, rebooted, or was recreated."""

TIME_LIMIT = 50005

_FIRST_RESERVED = 50000
"""Exit codes from here on are Batch's own, not the task's program's."""

_CAUSES = {
    50001: "PREEMPTED",
    50002: "SILENT",
    50003: "REBOOTED",
    50004: "UNRESPONSIVE",
    50005: "OUT_OF_TIME",
    50006: "RECREATED",
}
"""What these mean for the machine, in a word: Batch itself calls all of them FAILED."""

_JOBS = {
    "STATE_UNSPECIFIED": JobState.WAITING,
    "QUEUED": JobState.WAITING,
    "SCHEDULED": JobState.WAITING,
    "RUNNING": JobState.RUNNING,
    "SUCCEEDED": JobState.DONE,
    "FAILED": JobState.FAILED,
    "DELETION_IN_PROGRESS": JobState.ENDING,
    "CANCELLATION_IN_PROGRESS": JobState.ENDING,
    "CANCELLED": JobState.CANCELLED,
}

_TASKS = {
    "STATE_UNSPECIFIED": JobState.WAITING,
    "PENDING": JobState.WAITING,
    "ASSIGNED": JobState.WAITING,
    "RUNNING": JobState.RUNNING,
    "SUCCEEDED": JobState.DONE,
    "FAILED": JobState.FAILED,
    "UNEXECUTED": JobState.INTERRUPTED,  # Its job ended first.
}

_PLACE = re.compile(r"\bzones/(?P<zone>[a-z0-9-]+)/instances/(?P<machine>[\w-]+)")
_SHORTAGE = re.compile(r"\bcode - (?P<code>CODE_\w+)(?:, description - (?P<text>.*))?", re.DOTALL)


@dataclass(frozen=True)
class Event:
    """Something that happened to a job or a task."""

    time: float
    text: str
    exit_code: int | None = None
    """Of a task that ended."""


@dataclass(frozen=True)
class Ending:
    """How a task ended, by the newest of its events that says so."""

    exit_code: int | None = None

    @property
    def is_interruption(self) -> bool:
        """Whether its machine was lost, through no fault of the task."""
        return self.exit_code in INTERRUPTIONS

    @property
    def own_code(self) -> int | None:
        """The exit code of the task's own program; None if Batch ended it."""
        return None if self.exit_code is None or self.exit_code >= _FIRST_RESERVED else self.exit_code


def word_of(state: str, ending: Ending) -> str:
    """A state for people: Batch's word or, for a task that Batch ended, the reason with its code."""
    if state != "FAILED" or ending.exit_code is None or ending.exit_code < _FIRST_RESERVED:
        return state
    return f"{_CAUSES.get(ending.exit_code, state)} ({ending.exit_code})"


def ending_of(events: Iterable[Event]) -> Ending:
    """How a task ended."""
    codes = [event for event in events if event.exit_code is not None]
    return Ending(max(codes, key=lambda event: event.time).exit_code) if codes else Ending()


def place_of(events: Iterable[Event]) -> str:
    """The machine that the newest event names, `us-central1-a/7012345`; empty if none does."""
    found = [(event.time, match) for event in events if (match := _PLACE.search(event.text)) is not None]
    if not found:
        return ""
    newest = max(found, key=lambda pair: pair[0])[1]
    return f"{newest['zone']}/{newest['machine']}"


def shortage_of(events: Iterable[Event]) -> str:
    """Why a job has no machines, from its newest event about that: one of Batch's codes, and its message."""
    found = [(event.time, match) for event in events if (match := _SHORTAGE.search(event.text)) is not None]
    if not found:
        return ""
    newest = max(found, key=lambda pair: pair[0])[1]
    return ": ".join(part.strip() for part in newest.group("code", "text") if part)


def job_state(word: str, ending: Ending | None = None) -> JobState:
    """The state of a job that is not an array. An unknown state is not an end."""
    return _explained(_JOBS.get(word, JobState.WAITING), ending)


def element_state(job_word: str, task_word: str | None, ending: Ending | None = None) -> JobState:
    """The state of an element of an array: that of its task, or of the whole job while (or if) it has none."""
    whole = _JOBS.get(job_word, JobState.WAITING)
    if task_word is None:
        # Running, or ended, without any task of this number: it never began.
        return {JobState.RUNNING: JobState.WAITING, JobState.FAILED: JobState.INTERRUPTED}.get(whole, whole)
    state = _explained(_TASKS.get(task_word, JobState.WAITING), ending)
    if state is JobState.DONE or whole not in (JobState.CANCELLED, JobState.ENDING):
        return state
    return whole


def _explained(state: JobState, ending: Ending | None) -> JobState:
    if state is not JobState.FAILED or ending is None or ending.exit_code is None:
        return state
    if ending.exit_code in INTERRUPTIONS:
        return JobState.INTERRUPTED
    return JobState.TIMED_OUT if ending.exit_code == TIME_LIMIT else JobState.FAILED
