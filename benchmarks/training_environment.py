"""The Python of the locked environment `train`, made by the builder that makes it for steps."""

from __future__ import annotations

import sys
from functools import cache

from benchmarks import ROOT


@cache
def training_python() -> str:
    """Built the first time; benchmarks are not slower or faster for it."""
    from marin_rules.software.build import ensure_environment
    from marin_rules.software.environment import Environment, environments_folder

    environment = Environment.of_groups(["train"], str(ROOT), prefix="out")
    return str(ensure_environment(environment, environments_folder(), lambda text: print(text, file=sys.stderr)))
