"""Environment variables of steps: how they reach the worker without touching a file or a command line.

The values given to `remote(fn, env_vars=...)` may be secrets. They travel in one variable of the driver's own
environment, which jobs inherit; the plan only says which set a step takes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from marin_rules.errors import MarinRulesError

_VARIABLE = "MARIN_RULES_STEP_ENVIRONMENTS"
_OWN_PREFIX = "MARIN_RULES_"


def exported(environments: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What the driver adds to its environment."""
    return {_VARIABLE: json.dumps(list(environments))} if environments else {}


def enter_step_environment(number: int | None) -> None:
    """Give this process the variables of its step, and hide from it those that steer this run."""
    environments = json.loads(os.environ.get(_VARIABLE, "[]"))
    for name in [name for name in os.environ if name.startswith(_OWN_PREFIX)]:
        del os.environ[name]
    if number is None:
        return
    if number >= len(environments):
        raise MarinRulesError(
            "the step's environment variables did not reach this process. They travel in the environment of the driver:"
            " start the experiment again, with an executor that passes it on to its jobs."
        )
    os.environ.update(environments[number])
