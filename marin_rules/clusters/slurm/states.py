"""What the states of Slurm's jobs mean."""

from __future__ import annotations

from enum import Enum, auto

from marin_rules.clusters.protocol import JobState

_STATES = {
    "PENDING": JobState.WAITING,
    "CONFIGURING": JobState.WAITING,
    "POWER_UP_NODE": JobState.WAITING,
    "REQUEUED": JobState.WAITING,
    "REQUEUE_FED": JobState.WAITING,
    "REQUEUE_HOLD": JobState.WAITING,
    "RESV_DEL_HOLD": JobState.WAITING,
    "SPECIAL_EXIT": JobState.WAITING,  # Queued again by a site's own rule, and held.
    "EXPEDITING": JobState.WAITING,
    "RUNNING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "SUSPENDED": JobState.SUSPENDED,
    "STOPPED": JobState.SUSPENDED,
    "COMPLETING": JobState.ENDING,
    "STAGE_OUT": JobState.ENDING,
    "COMPLETED": JobState.DONE,
    "FAILED": JobState.FAILED,
    "OUT_OF_MEMORY": JobState.OUT_OF_MEMORY,
    "TIMEOUT": JobState.TIMED_OUT,
    "DEADLINE": JobState.TIMED_OUT,
    "CANCELLED": JobState.CANCELLED,
    "PREEMPTED": JobState.INTERRUPTED,
    "NODE_FAIL": JobState.INTERRUPTED,
    "BOOT_FAIL": JobState.INTERRUPTED,
    "LAUNCH_FAILED": JobState.INTERRUPTED,
    "RECONFIG_FAIL": JobState.INTERRUPTED,
    "REVOKED": JobState.INTERRUPTED,  # Another cluster of a federation has it.
}
"""All states of Slurm 22.05 to 25.05."""


def state_of(word: str) -> JobState:
    """What Slurm's word says. One that is new to us is no end."""
    return _STATES.get(word, JobState.WAITING)


class Meaning(Enum):
    """What became of a job."""

    LIVE = auto()
    """It waits, runs, or is about to run again: Slurm itself takes care of it."""

    DONE = auto()
    FAILED = auto()
    OUT_OF_MEMORY = auto()
    TIMED_OUT = auto()
    CANCELLED = auto()
    """A person ended it."""

    INTERRUPTED = auto()
    """Its machine was taken away or broke: no fault of the step."""


_ENDED = {
    "COMPLETED": Meaning.DONE,
    "FAILED": Meaning.FAILED,
    "OUT_OF_MEMORY": Meaning.OUT_OF_MEMORY,
    "TIMEOUT": Meaning.TIMED_OUT,
    "DEADLINE": Meaning.TIMED_OUT,
    "CANCELLED": Meaning.CANCELLED,
    "PREEMPTED": Meaning.INTERRUPTED,
    "NODE_FAIL": Meaning.INTERRUPTED,
    "BOOT_FAIL": Meaning.INTERRUPTED,
    "REVOKED": Meaning.INTERRUPTED,
}


def meaning_of(state: str) -> Meaning:
    """What a state says; one that is not an end is alive, also if it is new to us."""
    return _ENDED.get(state, Meaning.LIVE)


def is_live(state: str) -> bool:
    return meaning_of(state) is Meaning.LIVE
