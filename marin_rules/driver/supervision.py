"""What the supervisor of a submitted driver and its engine share: two signals, and some variables."""

from __future__ import annotations

import os
import signal

LEAVE = signal.SIGUSR1
"""End, and let the jobs of clusters continue: the run will be started again, and takes them over."""

STOP = signal.SIGUSR2
"""End the run and all of its jobs, as Ctrl-C would."""

VARIABLE = "MARIN_RULES_SUPERVISOR"
"""The process that supervises the engine."""

PLAN_VARIABLE = "MARIN_RULES_PLAN"
"""Names the plan that a process is started with, in place of an experiment to plan."""

DIGEST_VARIABLE = "MARIN_RULES_PLAN_DIGEST"
"""The digest that the plan must have; without it, only a plan of this user's own is accepted."""


def is_supervised() -> bool:
    """Whether this process is the engine of a submitted driver, which obeys only its supervisor."""
    return os.environ.get(VARIABLE) == str(os.getppid())
