"""The launch of a step on a cluster: what its job executes, and all that travels with it.

One `Launcher` a run, one `Launch` a job:

    launch = launcher.for_step(step, cores=4, command=...)
    launch.script      lines of shell, the body of a batch script
    launch.variables   every variable that the job starts with, beside those that the cluster itself sets

The values of variables may be secrets: a cluster hands them over in the job's environment, never in its script, on a
command line or in a log.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.worker.variables import for_job_elsewhere, without_sets

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""Variables that tell libraries how many cores a job has: else they would take all that a node has."""


@dataclass(frozen=True)
class Launch:
    """What the job of a step executes, and the variables that it finds."""

    script: str
    """Lines of shell."""

    variables: Mapping[str, str] = field(repr=False)
    """Names and values, some of them secret."""


class Launcher:
    """Makes the launches of one run."""

    def __init__(self, plan: FrozenPlan) -> None:
        self._plan = plan

    def for_step(self, step: FrozenStep, *, cores: int, command: str) -> Launch:
        """The launch of a step whose job has `cores`; `command` is what starts the step from the driver's own files."""
        own = for_job_elsewhere([step.variables])
        variables = {**dict.fromkeys(THREADS, str(cores)), **without_sets(os.environ), **own}
        return Launch(command, variables)
