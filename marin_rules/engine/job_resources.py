"""What Snakemake is told about a step's machines, and where they are.

Rules take `threads` and `resources` from here. Locally a step gets at most what this machine has, and steps that run at
the same time share it. A step that is divided into tasks gets as much as the tasks that can run at the same time need.
On a cluster the request is translated into the cluster's terms (see `clusters.protocol.Site`). What a profile says in
`set-resources` wins. Plain steps ask for nothing but a slot. This also estimates what the jobs of a run may cost, and
whether the cluster would accept them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any

from marin_rules.clusters.estimates import Estimate
from marin_rules.clusters.open import CLUSTER_NAMES, open_cluster, resource_names
from marin_rules.clusters.protocol import ArrayTasks, Cluster, ClusterError, JobRequest, JobTag, Site
from marin_rules.clusters.this_machine import gpus, memory_mb
from marin_rules.driver.destination import destination_here, with_environment
from marin_rules.engine.invocation import Invocation
from marin_rules.engine.plan_in_process import PlanInProcess
from marin_rules.errors import SettingsError
from marin_rules.machines import MachineRequest
from marin_rules.plans.frozen import FrozenStep

STEP_SLOT = "step_slots"
"""Every step takes one; `max_concurrent` says how many there are."""


class JobResources:
    """Answers for the rules of one plan."""

    def __init__(self, in_process: PlanInProcess, invocation: Invocation) -> None:
        self._in_process = in_process
        self._invocation = invocation
        self._answers: dict[tuple[MachineRequest, tuple[str, ...] | None, int], Mapping[str, Any]] = {}
        self._refusals: dict[Hashable, str | None] = {}

    @cached_property
    def _cluster(self) -> Cluster | None:
        name = self._invocation.cluster
        return None if name is None else open_cluster(name)

    @property
    def may_share_files(self) -> bool:
        """Whether the machines of jobs may have the driver's files."""
        return self._cluster is None or self._cluster.may_share_files

    @cached_property
    def site(self) -> Site | None:
        """The cluster that the run is for, None for a run on this machine."""
        return None if self._cluster is None else self._cluster.open_site(self._in_process.plan.run.cluster)

    def check(self, steps: list[FrozenStep]) -> None:
        """Refuse steps that the cluster cannot run, and set the limits of this machine."""
        site = self.site
        if site is not None:
            if not self._invocation.has_foreign_executor:
                _refuse_unknown(self._invocation.resources_named)
            for step in steps:
                if step.machines is not None:
                    self._there(step, 1)
        elif self._invocation.runs_here:
            self._invocation.count_cores()
            self._invocation.limit("mem_mb", memory_mb())
            self._invocation.limit("gpu", len(gpus()))

    # -- for rules -------------------------------------------------------------------------------------------

    def threads(self, rule: str) -> Any:
        if not self._is_remote(rule) and rule not in self._array_rules:
            return 1
        return lambda wildcards: self._cores(self._in_process.step(wildcards.step))

    def resources(self, rule: str) -> dict[str, Any]:
        """What a rule's `resources:` contain; None leaves one out."""
        if not self._is_remote(rule):
            return {STEP_SLOT: 1}
        # The cluster, if any, is not known yet while the rules are read: hence the names of all.
        names = {*_HERE, *resource_names()}
        return {STEP_SLOT: 1, **{name: self._resource(name) for name in sorted(names)}}

    @cached_property
    def _array_rules(self) -> frozenset[str]:
        steps = self._in_process.plan.steps
        return frozenset(self._in_process.rule(step) for step in steps if step.tasks is not None)

    def _cores(self, step: FrozenStep) -> int:
        return (1 if step.machines is None else step.machines.cpu) * self._at_once(step)

    def _at_once(self, step: FrozenStep) -> int:
        """How many tasks of a step its job runs at the same time: one if each has a job of its own."""
        if step.tasks is None or (self.site is not None and step.machines is not None):
            return 1
        return tasks_at_once(step.tasks, step.machines, self._invocation.cores, memory_mb(), len(gpus()))

    def _is_remote(self, rule: str) -> bool:
        return rule in self._in_process.remote_rules

    def _resource(self, name: str) -> Callable[..., Any]:
        def evaluate(wildcards: Any, attempt: int) -> Any:
            step = self._in_process.step(wildcards.step)
            assert step.machines is not None
            if self.site is not None:
                return self._there(step, attempt).get(name)
            amount = _HERE[name](step.machines) if name in _HERE else 0
            return amount * self._at_once(step) or None

        return evaluate

    def _there(self, step: FrozenStep, attempt: int) -> Mapping[str, Any]:
        """Snakemake requests each resource separately; many steps ask for the same machines."""
        assert self.site is not None
        assert step.machines is not None
        question = (step.machines, step.regions, attempt)
        if question not in self._answers:
            self._answers[question] = self.site.resources(step.machines, step.name, attempt, step.regions)
        return self._answers[question]

    # -- for people ------------------------------------------------------------------------------------------

    def destination(self, step: FrozenStep) -> str | None:
        """Where a step will run, in a few words; None where there is nothing to say."""
        if self.site is None and self._invocation.runs_here:
            return destination_here(self._in_process.plan, step)
        return with_environment(self._machines_in_words(step), self._in_process.plan, step)

    def _machines_in_words(self, step: FrozenStep) -> str | None:
        if self.site is None:
            return None
        if self._stays_here(step):
            return "here"
        assert self._cluster is not None
        tasks = "" if step.tasks is None else f"{step.tasks} tasks, each "
        words = f"{self._cluster.name}: {tasks}{self.site.describe(self._sent_with(step))}"
        estimate = self.estimate(step)
        return words if estimate is None else f"{words}, {estimate}"

    def estimate(self, step: FrozenStep) -> Estimate | None:
        """What a step may cost; None for one that costs nothing. Known once the DAG is built."""
        if self.site is None or self._stays_here(step):
            return None
        resources = self._sent_with(step)
        price = self.site.price(resources)
        return None if price is None else Estimate(step.name, price, resources.get("runtime") or None, step.tasks or 1)

    def refusal(self, step: FrozenStep) -> str | None:
        """Why the cluster would not accept the job of a step; None if it may. Known once the DAG is built."""
        if self.site is None or step.machines is None or self._stays_here(step):
            return None
        resources = self._sent_with(step)
        # Everything in such a request except names: many steps ask for the same.
        question = (tuple(sorted(resources.items(), key=str)), step.variables, step.tasks, step.software is None)
        if question not in self._refusals:
            self._refusals[question] = self._asked(self.site, step, resources)
        why = self._refusals[question]
        return None if why is None else f"step {step.name!r} could not be submitted: {why}"

    def _asked(self, site: Site, step: FrozenStep, resources: Mapping[str, Any]) -> str | None:
        run, launcher = self._in_process.plan.run, self._in_process.launcher
        tasks = None if step.tasks is None else ArrayTasks(1, 0)
        launch = launcher.draft(step, cores=self._cores(step))
        request = JobRequest(
            name=step.job_name or step.name,
            tag=JobTag.of(run.id, step.key, step.output_path, tasks),
            script=launch.script,
            variables=launch.variables,
            folder=launch.folder,
            log=launch.log,
            meeting_place=launcher.meeting_place,
            resources=resources,
            elements=None if step.tasks is None else range(step.tasks),
        )
        try:
            site.check(request)
        except ClusterError as error:
            return str(error)
        return None

    def _stays_here(self, step: FrozenStep) -> bool:
        return self._invocation.stays_here(self._in_process.rule(step))

    def _sent_with(self, step: FrozenStep) -> Mapping[str, Any]:
        """What the job of a step gets, after all that profiles and flags change."""
        assert self.site is not None
        resources = self._invocation.resources_of(step.key)
        # A hand-written rule may leave it to the cluster's file.
        return {**self.site.defaults(), **resources} if step.machines is None else resources


_HERE: Mapping[str, Callable[[MachineRequest], int]] = {
    "mem_mb": lambda request: request.memory_mb,
    "disk_mb": lambda request: request.disk_mb,
    "gpu": lambda request: request.gpus,
}
"""What a step asks of this machine, or each of its tasks."""


def _refuse_unknown(named: Mapping[str, Iterable[str]]) -> None:
    """A cluster's term that none of ours knows would have no effect, and the job would not be what was asked for. Any
    other may be a resource of the user's own."""
    known = sorted(resource_names())
    of_clusters = tuple(f"{name}_" for name in CLUSTER_NAMES)
    for flag, names in named.items():
        for name in sorted(names):
            if name.startswith(of_clusters) and name not in known:
                (near,) = difflib.get_close_matches(name, known, n=1, cutoff=0)
                raise SettingsError(f"{flag}: no cluster knows the resource {name}: did you mean {near}?")


def tasks_at_once(tasks: int, request: MachineRequest | None, cores: int, memory: int, gpu_count: int) -> int:
    """How many tasks of a step this machine can run at the same time. One at least: a step gets all there is."""
    if request is None:
        return max(1, min(tasks, cores))
    wanted = [(request.cpu, cores), (request.memory_mb, memory), (min(request.gpus, gpu_count), gpu_count)]
    return max(1, min(tasks, *(there // each for each, there in wanted if each)))
