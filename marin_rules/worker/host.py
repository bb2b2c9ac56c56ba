"""Another machine of a step's job: no worker, no lease, only ranks, when the worker of the step asks for them.

On some clusters all machines of a job start with the same command. The first of them runs the step's worker; the others
come here. What they run is known from that command, with the digests of plan and code: the worker only says
when.
"""

from __future__ import annotations

import os
import signal
import sys

from marin_rules.clusters.allocation import OtherMachine
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.worker.library_variables import forget_library_variables, leave_outer_step
from marin_rules.worker.ranks import RANK, rank_arguments
from marin_rules.worker.variables import set_step_variables


def serve_ranks(machine: OtherMachine, plan: FrozenPlan, step: FrozenStep) -> int:
    """Run ranks of the step for as long as its worker wants them."""
    leave_outer_step(os.environ)
    forget_library_variables(os.environ)
    set_step_variables(step.variables)
    signal.signal(signal.SIGTERM, lambda number, frame: machine.stop())
    return machine.serve([sys.executable, "-P", "-m", RANK, *rank_arguments(plan, step)])
