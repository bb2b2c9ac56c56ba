"""How a module of ours is started on another machine of the step's cluster.

Where machines share files, with the Python that runs this one. Where they do not, the launch of the step provides what
fetches Python and code there, as it did on this machine.
"""

from __future__ import annotations

import os
import sys

from marin_rules.plans.frozen import FrozenStep

START_VARIABLE = "MARIN_RULES_START"
"""Bash that starts a module on a machine that has nothing yet: `bash -c START NAME MODULE [ARGUMENT ...]`."""

_OWN_ENVIRONMENT = "marin_rules.worker.own_environment"


def shares_files() -> bool:
    """Whether the other machines of this step have the files of this one."""
    return START_VARIABLE not in os.environ


def start_elsewhere(step: FrozenStep, module: str) -> list[str]:
    """The words that start a module for a step on any machine of its cluster; arguments follow."""
    script = os.environ.get(START_VARIABLE)
    if script is None:
        return [sys.executable, "-P", "-m", module]
    return ["bash", "-c", script, "start", *modules_of(step, module)]


def modules_of(step: FrozenStep, module: str) -> list[str]:
    """What is started for a module on a machine without the driver's files: first what makes the step's environment."""
    return [module] if step.software is None else [_OWN_ENVIRONMENT, module]
