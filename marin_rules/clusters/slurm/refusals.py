"""Whether an error of Slurm's commands is worth a retry: pure, by Slurm's own messages.

Four kinds. Slurm is busy or restarting, and may have done what it was asked to do; or it has as many of the user's jobs
as it accepts, and has not: both pass, however long it takes. The request itself is wrong: the same words will be
refused tomorrow. Anything else (a clock that is off, a full spool, an error in a site's own filter) may be either; it
is retried for some time, and then a person must see it.
"""

from __future__ import annotations

from enum import Enum, auto


class Refusal(Enum):
    """Whether the same command may succeed later."""

    PASSING = auto()
    FULL = auto()
    UNKNOWN = auto()
    LASTING = auto()


_PASSING = (
    "unable to contact slurm controller",
    "unable to contact the controller",
    "socket timed out",
    "connection refused",
    "connect failure",
    "connection timed out",
    "zero bytes were transmitted",
    "transport endpoint is not connected",
    "temporarily unavailable",
    "temporarily unable",
    "in standby mode",
    "slurm_load_jobs error",
)

_FULL = "submitjob"
"""In the names of all limits on the number of jobs: `AssocMaxSubmitJobLimit`, `QOSGrpSubmitJobsLimit`."""

_LASTING = (
    "invalid partition",
    "invalid account",
    "invalid qos",
    "invalid feature specification",
    "invalid generic resource",
    "invalid trackable resource",
    "invalid node name",
    "invalid wckey",
    "invalid licenses",
    "invalid job reservation",
    "requested reservation is invalid",
    "requested node configuration is not available",
    "requested partition configuration not available",
    "requested time limit is invalid",
    "time limit specification required",
    "node count specification invalid",
    "more processors requested than permitted",
    "memory specification can not be satisfied",
    "memory required by task is not available",
    "cpu count per node can not be satisfied",
    "user's group not permitted",
    "violates accounting/qos policy",
    "pathname of a file, directory or other parameter too long",
    "unrecognized option",
    "unrecognised option",
    "invalid option",
    "requires an argument",
    "option requires",
    "ambiguous option",
    "invalid --",
    "invalid numeric value",
    "invalid number of",
)


def kind_of(message: str) -> Refusal:
    """What an error message says. A limit on the number of jobs passes, though Slurm also calls it a policy."""
    text = message.lower()
    if any(sign in text for sign in _PASSING):
        return Refusal.PASSING
    if _FULL in text:
        return Refusal.FULL
    return Refusal.LASTING if any(sign in text for sign in _LASTING) else Refusal.UNKNOWN
