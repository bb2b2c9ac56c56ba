"""What Snakemake is told of a step's machines, and where they are.

Rules take `threads` and `resources` from here. Locally a step gets at most what this machine has, and steps that run at
the same time share it. On Slurm the request is put in the words of the cluster (see `clusters.slurm.site`): memory and
time grow with each attempt, up to what the partition has. What a profile says in `set-resources` wins.

Resources have the names that Snakemake's Slurm plug-in gives them. Plain steps ask for nothing but a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from marin_rules.clusters.slurm.commands import SlurmError
from marin_rules.clusters.slurm.discovery import discover_site
from marin_rules.clusters.slurm.site import Queue, Site, read_site
from marin_rules.clusters.this_machine import gpus, memory_mb
from marin_rules.driver.destination import destination_here, with_environment
from marin_rules.engine.invocation import Invocation
from marin_rules.engine.plan_in_process import PlanInProcess
from marin_rules.errors import SettingsError
from marin_rules.machines import MachineRequest
from marin_rules.plans.frozen import FrozenStep
from marin_rules.units import memory_text, minutes_text

STEP_SLOT = "step_slots"
"""Every step takes one; `max_concurrent` says how many there are."""


class JobResources:
    """Answers for the rules of one plan."""

    def __init__(self, in_process: PlanInProcess, invocation: Invocation) -> None:
        self._in_process = in_process
        self._invocation = invocation

    @cached_property
    def site(self) -> Site | None:
        """The Slurm cluster that the run is for, None for a run on this machine."""
        if not self._invocation.is_for_slurm:
            return None
        name = self._in_process.plan.run.cluster
        if name is None:
            try:
                return discover_site()
            except SlurmError as error:
                raise SettingsError(
                    "the run is for Slurm, but Slurm cannot be asked for its partitions here. Start it on a login node,"
                    f" or name the cluster's file with --config cluster=NAME. ({error})"
                ) from error
        site = read_site(name)
        if site is None:
            raise SettingsError(
                f"the cluster {name} has no block 'slurm:' in its file: add one, or choose another with MARIN_CLUSTER"
                " or --config cluster=NAME; with none, Slurm is asked for its partitions."
            )
        return site

    def check(self, steps: list[FrozenStep]) -> None:
        """Refuse steps that the cluster cannot run, and set the limits of this machine."""
        site = self.site
        if site is not None:
            for step in steps:
                if step.machines is not None:
                    site.queue_for(step.machines, step.name)
        elif self._invocation.runs_here:
            self._invocation.count_cores()
            self._invocation.limit("mem_mb", memory_mb())
            self._invocation.limit("gpu", len(gpus()))

    # -- for rules -------------------------------------------------------------------------------------------

    def threads(self, rule: str) -> Any:
        return self._of_machines(lambda request, queue, attempt: request.cpu) if self._is_remote(rule) else 1

    def resources(self, rule: str) -> dict[str, Any]:
        """What stands in a rule's `resources:`; None leaves one out."""
        if not self._is_remote(rule):
            return {STEP_SLOT: 1}
        return {
            STEP_SLOT: 1,
            **{name: self._of_machines(answer) for name, answer in _ANSWERS.items()},
        }

    def _is_remote(self, rule: str) -> bool:
        return rule in self._in_process.remote_rules

    def _of_machines(self, answer: _Answer) -> Callable[..., Any]:
        def evaluate(wildcards: Any, attempt: int) -> Any:
            step = self._in_process.step(wildcards.step)
            assert step.machines is not None
            queue = None if self.site is None else self.site.queue_for(step.machines, step.name)
            return answer(step.machines, queue, attempt)

        return evaluate

    # -- for people ------------------------------------------------------------------------------------------

    def destination(self, step: FrozenStep) -> str | None:
        """Where a step will run, in a few words; None where there is nothing to say."""
        if self.site is None and self._invocation.runs_here:
            return destination_here(self._in_process.plan, step)
        return with_environment(self._machines_in_words(step), self._in_process.plan, step)

    def _machines_in_words(self, step: FrozenStep) -> str | None:
        request = step.machines
        if self.site is None:
            return None
        if self._invocation.stays_here(self._in_process.rule(step)):
            return "here"
        resources = self._invocation.resources_of(step.key)
        if request is None:  # A hand-written rule, which may leave it to the cluster's file.
            resources = {"slurm_partition": self.site.cpu.partition, "runtime": self.site.cpu.runtime, **resources}
        return f"slurm: {slurm_words(resources)}"


def slurm_words(resources: Mapping[str, Any]) -> str:
    """What a job asks of Slurm, in a few words."""
    nodes, cpus, minutes = (resources.get(name) for name in ("nodes", "cpus_per_task", "runtime"))
    parts = [
        f"partition {resources['slurm_partition']}" if resources.get("slurm_partition") else "default partition",
        f"{nodes} nodes" if nodes and nodes > 1 else "",
        str(resources.get("gres") or ""),
        f"{cpus} {'CPU' if cpus == 1 else 'CPUs'}" if cpus else "",
        memory_text(resources["mem_mb"]) if resources.get("mem_mb") else "",
        minutes_text(minutes) if minutes else "",
    ]
    return ", ".join(part for part in parts if part)


type _Answer = Callable[[MachineRequest, Queue | None, int], Any]


def _memory(request: MachineRequest, queue: Queue | None, attempt: int) -> int:
    if queue is None:
        return request.memory_mb
    return _grown(request.memory_mb, attempt, queue.max_memory_mb)


def _runtime(request: MachineRequest, queue: Queue | None, attempt: int) -> int | None:
    if queue is None or queue.runtime is None:
        return None
    return _grown(queue.runtime, attempt, queue.max_runtime)


def _grown(amount: int, attempt: int, most: int | None) -> int:
    grown = amount * attempt
    return grown if most is None else max(amount, min(grown, most))


def _gres(request: MachineRequest, queue: Queue | None, attempt: int) -> str | None:
    if queue is None or not request.gpus:
        return None
    return ":".join(["gpu", *([queue.gres] if queue.gres else []), str(request.gpus)])


_ANSWERS: Mapping[str, _Answer] = {
    "mem_mb": _memory,
    "disk_mb": lambda request, queue, attempt: request.disk_mb,
    "gpu": lambda request, queue, attempt: request.gpus if queue is None and request.gpus else None,
    "runtime": _runtime,
    "gres": _gres,
    "nodes": lambda request, queue, attempt: queue and request.replicas,
    "cpus_per_task": lambda request, queue, attempt: queue and request.cpu,
    "slurm_partition": lambda request, queue, attempt: queue and queue.partition,
    "slurm_account": lambda request, queue, attempt: queue and queue.account,
    "qos": lambda request, queue, attempt: queue and queue.qos,
    "constraint": lambda request, queue, attempt: queue and queue.constraint,
    "slurm_extra": lambda request, queue, attempt: queue and queue.extra,
}
