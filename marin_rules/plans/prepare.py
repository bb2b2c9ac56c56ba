"""From steps and settings to a frozen plan: the only path, whoever starts the run.

`python x.py` and `Executor.run` give their steps and settings to `prepare` as they are; `snakemake` first executes the
experiment file that its configuration names (`prepare_experiment`). What differs between the two is in `PlanSettings`.
Nothing is written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from marin_rules.errors import SettingsError
from marin_rules.geography import bucket_of
from marin_rules.identity import IdentityGraph
from marin_rules.placeholders import InputName
from marin_rules.placement import place
from marin_rules.plan import Plan, make_plan, narrowed
from marin_rules.plans.experiment_file import load_experiment
from marin_rules.plans.forcing import forced_steps
from marin_rules.plans.freezing import freeze
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.run import Run, absolute, new_run
from marin_rules.plans.step_names import check_asked_steps, indices
from marin_rules.plans.step_spec import StepSpec
from marin_rules.plans.stores import check_stores
from marin_rules.settings.cluster_file import cluster_name
from marin_rules.settings.data_buckets import read_cluster
from marin_rules.steps import ExecutorStep
from marin_rules.storage.explain import StorageError
from marin_rules.storage.prefix import PREFIX_VARIABLE, check_default_prefix, marin_prefix
from marin_rules.storage.regions import known_location, region_of
from marin_rules.urls import check_prefix

if TYPE_CHECKING:  # It reads YAML, which `python x.py` does not need.
    from marin_rules.settings.run_settings import Settings


@dataclass(frozen=True)
class PlanSettings:
    """Everything that a plan depends on besides its steps."""

    prefix: str
    caller_path: str
    """The file that was started, or that has the steps."""

    executor_info_base_path: str | None = None
    """Where the experiment is described; None for `<prefix>/experiments`."""

    description: str | None = None
    run_only: Sequence[str] | None = None
    """Regular expressions for names of steps: only these and what they need are run."""

    force: Sequence[str] = ()
    """Regular expressions for names of steps that run again even if they are done."""

    must_have: Sequence[str] = ()
    """Steps without which the plan is refused."""

    only: Sequence[str] = ()
    """Steps to run, with what they need, instead of what `run_only` says; a plan without them is refused."""

    again: bool = False
    """The steps of `only` run even if they are done."""

    force_run_failed: bool = True
    rule_files: Sequence[str] = ()
    """Hand-written Snakemake rules, in addition to those next to the caller."""

    cluster: str | None = None
    """The cluster that the run is for, by the name of its file; None for none."""

    warnings: Sequence[str] = ()
    """Remarks about the experiment, in addition to what planning finds."""

    may_be_unseen: Callable[[], bool] = lambda: False
    """Whether the plan is only shown: then a store that cannot be reached is a warning, not an error."""

    asks_stores: bool = True
    """False for a plan that will not run: no bucket is asked whether it exists or where it is."""


def prepare(
    steps: Iterable[ExecutorStep[Any] | InputName], settings: PlanSettings, graph: IdentityGraph | None = None
) -> FrozenPlan:
    """Plan the steps, decide where they may run, and freeze the plan, in memory.

    `graph` is an empty one for callers that want the identities of all steps, twins included: they are computed once.
    """
    check_prefix(settings.prefix)
    check_default_prefix(settings.prefix)
    if settings.cluster is not None:
        read_cluster(settings.cluster)  # Even if no step needs it: a misspelt name must not silently choose no cluster.
    run_only = None if settings.only else settings.run_only
    plan = make_plan(steps, prefix=settings.prefix, run_only=run_only, graph=graph)
    check_asked_steps(plan, (*settings.must_have, *settings.only), settings.caller_path)
    if settings.only:
        plan = narrowed(plan, indices(plan, settings.only))
    told = [*settings.warnings, *_stray_specs(plan)]
    regions, unseen = None, None
    if settings.asks_stores:
        unseen = _check_stores(plan, settings.may_be_unseen)
        region = region_of if unseen is None else _known_region
        regions = place(plan, partial(region, cluster_name=settings.cluster), told)
    if unseen is not None:
        told.append(unseen)
    plan = replace(plan, warnings=(*plan.warnings, *told))
    frozen = freeze(plan, describe_run(settings), regions)
    frozen.unseen = unseen is not None
    frozen.forced = forced_steps(frozen, settings.force, plan.roots if settings.only and settings.again else ())
    return frozen


def _stray_specs(plan: Plan) -> list[str]:
    """The message about StepSpecs that are stored elsewhere than the run although nobody chose that."""
    root = absolute(plan.prefix, os.getcwd())
    specs = [step.step.spec for step in plan.steps if isinstance(step.step.spec, StepSpec)]
    paths = [absolute(spec.output_path, os.getcwd()) for spec in specs if spec.is_below_default_prefix]
    stray = [path for path in paths if not path.startswith(f"{root}/")]
    if not stray:
        return []
    check_default_prefix(marin_prefix())
    return [
        f"{len(stray)} StepSpecs, such as {stray[0]}, are not below the prefix {plan.prefix}: where they are stored"
        f" is decided while the file is executed. Set {PREFIX_VARIABLE}, or use `snakemake --config prefix=...`"
    ]


def _check_stores(plan: Plan, may_be_unseen: Callable[[], bool]) -> str | None:
    """Refuse a plan whose stores cannot be used; or say what could not be seen, if that is enough."""
    try:
        check_stores(plan)
    except StorageError as error:
        if error.errno == errno.ENOENT or not may_be_unseen():  # There is no such bucket.
            raise
        return (
            f"{error} What is already done is therefore unknown: all steps are shown as new, and the location of the"
            " data is taken from the cluster's file alone."
        )
    return None


def _known_region(url: str, cluster_name: str | None) -> str | None:
    """Where a bucket is, as far as the cluster's file says."""
    bucket = bucket_of(url)
    return None if bucket is None else known_location(bucket, cluster_name)[1]


def describe_run(settings: PlanSettings) -> Run:
    """The run that starts now with these settings. Asks git for the commit; writes nothing."""
    return new_run(
        prefix=settings.prefix,
        caller_path=settings.caller_path,
        executor_info_base_path=settings.executor_info_base_path,
        description=settings.description,
        force_run_failed=settings.force_run_failed,
        rule_files=settings.rule_files,
        cluster=settings.cluster,
    )


def prepare_experiment(settings: Settings, *, may_be_unseen: Callable[[], bool] = lambda: False) -> FrozenPlan:
    """Execute the experiment file that the configuration names, and prepare the plan of its steps.

    `may_be_unseen`: see `PlanSettings`.
    """
    if settings.experiment is None:
        raise SettingsError("no experiment is named: set `experiment` in config/config.yaml or with --config")
    experiment = load_experiment(settings.experiment, is_for_marin=settings.compat, prefix=settings.prefix)
    keys = ("prefix", "run_only", "force", "force_run_failed", "executor_info_base_path")
    given = {key: getattr(settings, key) for key in keys}
    chosen = experiment.defaults | {key: value for key, value in given.items() if value is not None}
    cluster = settings.cluster or cluster_name()
    warnings = []
    if experiment.line_after is not None:
        warnings.append(
            f"{settings.experiment} continues after executor_main (line {experiment.line_after}): `snakemake` runs that"
            f" code before the steps, `python {settings.experiment}` after them"
        )
    return prepare(
        experiment.steps,
        PlanSettings(
            prefix=chosen.get("prefix") or marin_prefix(cluster),
            caller_path=settings.experiment,
            executor_info_base_path=chosen.get("executor_info_base_path"),
            description=experiment.description,
            run_only=chosen.get("run_only"),
            force=chosen.get("force") or (),
            must_have=settings.must_have,
            only=settings.only,
            again=settings.again,
            force_run_failed=chosen.get("force_run_failed", True),
            rule_files=settings.rules,
            cluster=cluster,
            warnings=warnings,
            may_be_unseen=may_be_unseen,
        ),
    )
