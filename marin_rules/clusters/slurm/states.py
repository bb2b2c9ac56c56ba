"""What the states of Slurm's jobs mean for a step."""

from __future__ import annotations

from enum import Enum, auto


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
