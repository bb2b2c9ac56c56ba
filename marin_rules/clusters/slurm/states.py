"""What the states of Slurm's jobs mean."""

from __future__ import annotations

from marin_rules.clusters.protocol import JobState

_STATES = {
    "PENDING": JobState.WAITING,
    "CONFIGURING": JobState.WAITING,
    "POWER_UP_NODE": JobState.WAITING,
    "REQUEUED": JobState.WAITING,
    "REQUEUE_FED": JobState.WAITING,
    "REQUEUE_HOLD": JobState.WAITING,
    "RESV_DEL_HOLD": JobState.WAITING,
    "SPECIAL_EXIT": JobState.WAITING,  # Requeued by a site's own rule, and held.
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
    """The meaning of Slurm's word. An unknown word is not an end."""
    return _STATES.get(word, JobState.WAITING)
