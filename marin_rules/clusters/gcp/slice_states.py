"""What Cloud TPU says about a slice, simplified: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class SliceState(Enum):
    """What can be done with a slice."""

    WAITING = "waiting"
    READY = "ready"
    """All of its hosts are up, or booting."""

    LOST = "lost"
    """It existed, and no longer does."""

    REFUSED = "refused"
    """It never arrived, and will not."""


@dataclass(frozen=True)
class SliceWord:
    """The state of a slice."""

    state: SliceState
    reason: str = ""
    """Google's own message."""


_COMING = frozenset(("STATE_UNSPECIFIED", "CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING"))
_GOING = frozenset(("SUSPENDING", "SUSPENDED", "DELETING"))
_BAD_NODES = frozenset(
    (
        *("REPAIRING", "RESTARTING", "REIMAGING", "STOPPING", "STOPPED", "DELETING", "PREEMPTED", "TERMINATED"),
        *("HIDING", "HIDDEN", "UNKNOWN"),
    )
)
"""UNKNOWN is what Google calls a node that could not be repaired."""


def judge_slice(state: str | None, error: str = "", nodes: Sequence[str] = ()) -> SliceWord:
    """The state of a queued resource (None: there is none) whose nodes are in these states."""
    if state is None:
        return SliceWord(SliceState.LOST, "it was deleted")
    if state == "FAILED":
        return SliceWord(SliceState.REFUSED, error or "FAILED")
    if state in _GOING:
        return SliceWord(SliceState.LOST, state)
    if state in _COMING:
        return SliceWord(SliceState.WAITING, state)
    bad = [node for node in nodes if node in _BAD_NODES]
    if bad:
        return SliceWord(SliceState.LOST, f"a node is {bad[0]}")
    if state == "ACTIVE" and nodes and all(node == "READY" for node in nodes):
        return SliceWord(SliceState.READY)
    return SliceWord(SliceState.WAITING, ", ".join(nodes) or state)
