"""`Executor`: Marin's view of a graph of steps, and a way to run it.

Its attributes are Marin's: what `compute_version` determines about each step, including odd cases. `run` is stricter
(see `marin_rules.plan`) and runs nothing itself: it freezes a plan and hands it to the engine.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from marin_rules.configs import instantiate_config, resolve_config, upstream_steps
from marin_rules.driver.engine_process import run_in_engine
from marin_rules.errors import SettingsError
from marin_rules.functions import function_name
from marin_rules.identity import Identity, IdentityGraph, Step
from marin_rules.placeholders import InputName, OutputName
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.prepare import PlanSettings, describe_run, prepare
from marin_rules.plans.run import INFO_FOLDER, caller_of_this_process
from marin_rules.refusals import check_steps
from marin_rules.settings.cluster_file import cluster_name
from marin_rules.state.info import ExecutorInfo, ExecutorStepInfo, experiment_info_path, write_experiment_info
from marin_rules.steps import ExecutorStep, get_executor_step
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.prefix import marin_prefix

logger = logging.getLogger(__name__)


class _VersionStrings(Mapping[Step, str]):
    """Step -> the JSON text of its version, built when asked for: some are megabytes long."""

    def __init__(self, identities: Mapping[Step, Identity]) -> None:
        self._identities = identities

    def __getitem__(self, step: Step) -> str:
        return self._identities[step].version_string()

    def __iter__(self) -> Iterator[Step]:
        return iter(self._identities)

    def __len__(self) -> int:
        return len(self._identities)


class _StepsByVersion(Mapping[str, Step]):
    """The JSON text of a version -> the first step that has it, kept by the text's digest."""

    def __init__(self, identities: Mapping[Step, Identity]) -> None:
        self._identities = identities
        self.by_digest: dict[str, Step] = {}

    def __getitem__(self, version: str) -> Step:
        return self.by_digest[hashlib.md5(version.encode(), usedforsecurity=False).hexdigest()]

    def __iter__(self) -> Iterator[str]:
        return (self._identities[step].version_string() for step in self.by_digest.values())

    def __len__(self) -> int:
        return len(self.by_digest)


class _Configs(Mapping[Step, Any]):
    """Step -> its config with every placeholder resolved, made when it is first asked for."""

    def __init__(self, paths: Mapping[Step, str], prefix: str) -> None:
        self._paths = paths
        self._prefix = prefix
        self._resolved: dict[Step, Any] = {}

    def __getitem__(self, step: Step) -> Any:
        if step not in self._resolved:
            self._resolved[step] = instantiate_config(step.config, self._paths[step], self._paths, self._prefix)
        return self._resolved[step]

    def __iter__(self) -> Iterator[Step]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


class Executor:
    """Computes versions and output paths of steps, and runs them."""

    def __init__(self, prefix: str, executor_info_base_path: str, description: str | None = None) -> None:
        self.prefix = prefix
        self.executor_info_base_path = executor_info_base_path
        self.description = description

        self._graph = IdentityGraph()
        self.output_paths: dict[Step, str] = {}
        self.configs: Mapping[Step, Any] = _Configs(self.output_paths, prefix)
        self.dependencies: dict[Step, list[Step]] = {}
        self.versions: dict[Step, dict[str, Any]] = {}
        self.is_pseudo_dep: dict[Step, bool] = {}
        self.version_strs: Mapping[Step, str] = _VersionStrings(self._graph.identities)
        self.version_str_to_step = _StepsByVersion(self._graph.identities)
        self.hashed_versions: dict[Step, str] = {}
        self.steps: list[Step] = []
        self.executor_info_path: str | None = None
        self._executor_info: ExecutorInfo | None = None
        self._plan: FrozenPlan | None = None
        """The last run."""

    def compute_version(self, step: Step, is_pseudo_dep: bool) -> None:
        """Determine the version, path, config and dependencies of `step` and of everything it refers to."""
        added = self._graph.add(step)
        self._take_in(added)
        for known in added:
            _ = self.configs[known]  # One that cannot be resolved is reported here.
        self._mark_pseudo(step, is_pseudo_dep)

    def _take_in(self, steps: Sequence[Step]) -> None:
        """Record what the graph knows about its new steps, dependencies first."""
        for step in steps:
            identity = self._graph.identities[step]
            first = self.version_str_to_step.by_digest.setdefault(identity.digest, step)
            if first is step:
                self.steps.append(step)
            else:
                logger.debug("step %s appears in the experiment twice with the same version", step.name)
            self.dependencies[step] = [self.canonicalize(item) for item in self._graph.collected[step].dependencies]
            self.versions[step] = identity.version
            self.hashed_versions[step] = identity.hash
            self.output_paths[step] = identity.output_path(self.prefix, step.override_output_path)

    def _mark_pseudo(self, step: Step, is_pseudo_dep: bool) -> None:
        """Marin's marks: the first visit decides, a later blocking one clears the mark of that step alone."""
        pending = [(step, is_pseudo_dep)]
        while pending:
            visited, pseudo = pending.pop()
            if visited in self.is_pseudo_dep:
                self.is_pseudo_dep[visited] = self.is_pseudo_dep[visited] and pseudo
                continue
            self.is_pseudo_dep[visited] = pseudo
            collected = self._graph.collected[visited]
            pending.extend((item, True) for item in reversed(collected.pseudo_dependencies))
            pending.extend((item, pseudo) for item in reversed(collected.dependencies))

    def canonicalize(self, step: Step) -> Step:
        """The first of the steps that have the version of `step`."""
        return self.version_str_to_step.by_digest[self._graph.identities[step].digest]

    def run(
        self,
        steps: Sequence[ExecutorStep[Any] | InputName],
        *,
        dry_run: bool = False,
        run_only: Sequence[str] | None = None,
        force: Sequence[str] | None = None,
        force_run_failed: bool = True,
        max_concurrent: int | None = None,
    ) -> dict[Step, str]:
        """Run `steps` and what they need; returns the output path of every known step.

        Raises RuntimeError "N step(s) failed" from "Step failed: <name>" from the original exception.
        """
        if max_concurrent is not None and max_concurrent < 1:
            raise SettingsError(f"max_concurrent must be at least 1, not {max_concurrent}")
        plan = self.prepare(
            steps, run_only=run_only, force=force, force_run_failed=force_run_failed, may_be_unseen=lambda: dry_run
        )
        run_in_engine(plan, dry_run=dry_run, max_concurrent=max_concurrent)
        return dict(self.output_paths)

    def prepare(
        self,
        steps: Sequence[ExecutorStep[Any] | InputName],
        *,
        run_only: Sequence[str] | None = None,
        force: Sequence[str] | None = None,
        force_run_failed: bool = True,
        may_be_unseen: Callable[[], bool] = lambda: False,
    ) -> FrozenPlan:
        """The plan that `run` would run; `may_be_unseen` for one that is only shown (see `plans.prepare`)."""
        steps = check_steps(steps)
        graph = IdentityGraph()
        settings = self._settings(
            run_only=run_only, force=force or (), force_run_failed=force_run_failed, may_be_unseen=may_be_unseen
        )
        plan = self._plan = prepare(steps, settings, graph)
        self._executor_info = None
        self._take_in(self._graph.adopt(graph))
        for step in steps:
            self._mark_pseudo(get_executor_step(step), is_pseudo_dep=False)
        self.executor_info_path = experiment_info_path(plan)
        return plan

    @property
    def executor_info(self) -> ExecutorInfo | None:
        """The description of the experiment; None before `run` or `get_infos`."""
        if self._executor_info is None and self._plan is not None:
            self.get_infos()
        return self._executor_info

    @property
    def step_infos(self) -> list[ExecutorStepInfo]:
        """The description of each step; empty before `run` or `get_infos`."""
        return [] if self.executor_info is None else self.executor_info.steps

    def get_infos(self) -> None:
        """Describe each step (`step_infos`) and the experiment (`executor_info`)."""
        steps = [
            ExecutorStepInfo(
                name=step.name,
                fn_name=function_name(step.fn),
                config=self.configs[step],
                description=step.description,
                override_output_path=step.override_output_path,
                version=self.versions[step],
                dependencies=[self.output_paths[dependency] for dependency in self.dependencies[step]],
                output_path=self.output_paths[step],
            )
            for step in self.steps
        ]
        run = describe_run(self._settings()) if self._plan is None else self._plan.run
        self._executor_info = ExecutorInfo(
            worker_id=Owner.current().worker_id,
            git_commit=run.git_commit,
            caller_path=run.caller_path,
            created_date=run.created_date,
            user=run.user,
            prefix=self.prefix,
            description=self.description,
            steps=steps,
        )

    def write_infos(self) -> None:
        """Write the experiment's info file. Infos of steps are written by the workers that run them."""
        self.executor_info_path = write_experiment_info(self._described(), Owner.current().worker_id)

    def get_experiment_url(self) -> str:
        """Where a browser finds the experiment's info file."""
        path = self.executor_info_path or experiment_info_path(self._described())
        if path.startswith("gs://"):
            return "https://storage.cloud.google.com/" + path.removeprefix("gs://")
        return path if "://" in path else Path(path).absolute().as_uri()

    def _described(self) -> FrozenPlan:
        """The plan that was run last, or one of all known steps, which nobody runs."""
        return self._plan or prepare(self.steps, self._settings(asks_stores=False))

    def _settings(self, **choices: Any) -> PlanSettings:
        return PlanSettings(
            prefix=self.prefix,
            caller_path=caller_of_this_process(),
            executor_info_base_path=self.executor_info_base_path,
            description=self.description,
            cluster=cluster_name(),
            **choices,
        )


def compute_output_path(
    name: str, config: Any, *, override_output_path: str | None = None, prefix: str | None = None
) -> str:
    """The output path that a step of this name and config has. No I/O."""
    graph = IdentityGraph()
    step = ExecutorStep(name=name, fn=None, config=config, override_output_path=override_output_path)
    graph.add(step)
    return graph.identities[step].output_path(marin_prefix() if prefix is None else prefix, override_output_path)


_materializing = threading.Lock()
"""Two threads that materialize configs with the same steps run them once: the second finds them done."""


def materialize(config: Any, *, prefix: str | None = None, output_path: str | None = None) -> Any:
    """Run the steps that `config` refers to, and return it with every placeholder resolved.

    A config without placeholders comes back as it is, and nothing is written.
    """
    own_path = getattr(config, "output_path", None) if output_path is None else output_path
    if isinstance(own_path, OutputName):
        raise TypeError(
            f"materialize: the config's output_path is still an OutputName, {own_path!r}. Pass output_path=..., or"
            " resolve it first with resolve_local_placeholders(config, output_path)."
        )
    resolved_prefix = marin_prefix() if prefix is None else prefix
    paths: dict[Step, str] = {}
    if steps := upstream_steps(config):
        executor = Executor(resolved_prefix, os.path.join(resolved_prefix, INFO_FOLDER))
        with _materializing:
            paths = executor.run(steps)
    return resolve_config(config, own_path, paths, resolved_prefix)[0]
