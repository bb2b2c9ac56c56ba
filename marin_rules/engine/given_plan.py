"""The frozen plan that a process is started with, in place of an experiment to plan.

Named in two variables, because Snakemake starts processes for the jobs of hand-written rules with a command line of its
own, to which we cannot add anything. They must not plan again, nor must the engine of `python x.py`, nor that of a
submitted driver.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from marin_rules.driver.supervision import DIGEST_VARIABLE, PLAN_VARIABLE
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.plan_file import read_plan
from marin_rules.plans.prepare import prepare_experiment
from marin_rules.settings.data_buckets import read_cluster
from marin_rules.settings.run_settings import Settings


def give_plan(path: str, digest: str | None) -> None:
    """Let this process, and those that it starts, take the plan at `path`."""
    os.environ[PLAN_VARIABLE] = path
    if digest is not None:
        os.environ[DIGEST_VARIABLE] = digest


def was_given() -> bool:
    """Whether this process was started with a plan, and has not passed one on itself."""
    return bool(os.environ.get(PLAN_VARIABLE))


def given_plan() -> FrozenPlan | None:
    """The plan that this process was started with, None if it has to make one."""
    path = os.environ.get(PLAN_VARIABLE)
    return read_plan(path, os.environ.get(DIGEST_VARIABLE)) if path else None


def plan_for(settings: Settings, *, may_be_unseen: Callable[[], bool] = lambda: False) -> FrozenPlan:
    """The plan that this process was started with, or else that of the experiment which the configuration names.

    `may_be_unseen`: see `plans.prepare.PlanSettings`.
    """
    plan = given_plan()
    if plan is None:
        return prepare_experiment(settings, may_be_unseen=may_be_unseen)
    if settings.cluster is not None:  # `python x.py` reads no configuration: it only knows MARIN_CLUSTER.
        plan.run = replace(plan.run, cluster=read_cluster(settings.cluster).name)
    return plan
