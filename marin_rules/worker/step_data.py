"""How a step reaches data: the prefix it writes to, `mirror://`, what reading from other regions may cost, and where
its libraries keep what they can rebuild."""

from __future__ import annotations

import contextlib
import os

from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.settings.cluster_file import CLUSTER_VARIABLE
from marin_rules.software.library_caches import set_library_caches
from marin_rules.storage.budget import step_ledger
from marin_rules.storage.guard import install_guard
from marin_rules.storage.mirror.install import install_mirror
from marin_rules.storage.prefix import PREFIX_VARIABLE

_kept: list[contextlib.AbstractContextManager[None]] = []
"""What stays open until the process ends."""


def open_data_access(plan: FrozenPlan, step: FrozenStep) -> None:
    """Prepare this process for the code of a step. Nothing is requested or read before the code does so.

    It stays so until the process ends: threads and exit handlers still work when the step's function has returned.
    """
    # Those of this run, however they were chosen. The step's own code asks for them in these variables, and so do the
    # filesystems that fsspec makes for it.
    os.environ[PREFIX_VARIABLE] = plan.run.prefix
    if plan.run.cluster is not None:
        os.environ[CLUSTER_VARIABLE] = plan.run.cluster
    set_library_caches(os.environ)
    install_guard()
    install_mirror()
    ledger = step_ledger(step.mirror_budget_gb)
    ledger.__enter__()
    _kept.append(ledger)
