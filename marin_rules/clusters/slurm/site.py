"""A Slurm cluster in the terms of its users: which partition, account and GPUs a step's machines are.

Converted from the `slurm:` block of `config/clusters/<name>.yaml`, whose keys `config/cluster.schema.yaml` checks, or
obtained from Slurm itself (see `discovery`). A request that the cluster cannot serve is refused with what it has,
before anything is submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from marin_rules.clusters.protocol import JobRequest
from marin_rules.clusters.slurm.resources import describe, job_resources
from marin_rules.errors import SettingsError
from marin_rules.machines import ANY_GPU, MachineRequest
from marin_rules.resources import canonical_gpu_variant
from marin_rules.settings.cluster_file import find_cluster_file, read_block
from marin_rules.units import MEGABYTE, memory_text, parse_memory, parse_minutes


@dataclass(frozen=True)
class Queue:
    """Where the jobs of one kind of machine go. None leaves a choice to Slurm."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    runtime: int | None = None
    """Time limit of a job in minutes, at its first attempt."""

    max_runtime: int | None = None
    """The longest time limit that the partition accepts, in minutes."""

    max_memory_mb: int | None = None
    """The most memory that one of its machines has."""

    extra: str | None = None
    """Further options for sbatch."""

    tasks_at_once: int | None = None
    """How many tasks of a step may have machines at the same time."""

    gres: str | None = None
    """What Slurm calls the GPUs: the middle of `gpu:a100:8`; None asks for any."""

    gpu_count: int | None = None
    """GPUs of one machine."""

    preemptible: Queue | None = None
    """Where preemptible jobs go, if not here."""


@dataclass(frozen=True)
class DriverQueue:
    """Where drivers that are jobs go, and what they get."""

    queue: Queue = field(default_factory=Queue)
    cores: int = 1
    memory_mb: int = 2048
    """For Snakemake, the plan, and small steps that run beside it."""


@dataclass(frozen=True)
class Site:
    """A cluster. See `protocol.Site`."""

    name: str
    cpu: Queue = field(default_factory=Queue)
    """For steps without an accelerator."""

    gpus: Mapping[str, Queue] = field(default_factory=dict)
    """For steps with GPUs, by the name of the GPU."""

    drivers: DriverQueue | None = None
    """For drivers; None sends them where steps without an accelerator go."""

    environments: str | None = None
    """Where Python environments of steps are kept: a folder that all nodes see."""

    trust: tuple[str, ...] = ()
    """Whose environments are used there besides one's own: users, and groups as `@name`."""

    def queue_for(self, request: MachineRequest, step: str) -> Queue:
        """Where the jobs of a step go; `SettingsError` if the cluster has no such machines."""
        if request.tpus:
            raise SettingsError(f"step {step!r} asks for a TPU {request.tpus[0]}; {self._offer()}")
        queue = self._gpu_queue(request, step) if request.gpus else self.cpu
        if request.preemptible and queue.preemptible is not None:
            queue = queue.preemptible
        if queue.max_memory_mb is not None and request.memory_mb > queue.max_memory_mb:
            raise SettingsError(
                f"step {step!r} asks for {memory_text(request.memory_mb)} of memory on each machine, but those of"
                f" {_partition(queue)} in Slurm cluster {self.name} have {memory_text(queue.max_memory_mb)}. Ask for"
                " less, or use more replicas."
            )
        return queue

    def resources(
        self, request: MachineRequest, step: str, attempt: int = 1, regions: Sequence[str] | None = None
    ) -> Mapping[str, Any]:
        return job_resources(request, self.queue_for(request, step), attempt)

    def defaults(self) -> Mapping[str, Any]:
        queue = self.cpu
        found = {
            "slurm_partition": queue.partition,
            "slurm_account": queue.account,
            "qos": queue.qos,
            "runtime": queue.runtime,
        }
        return {name: value for name, value in found.items() if value}

    def driver_resources(self) -> Mapping[str, Any]:
        drivers = self.drivers or DriverQueue(replace(self.cpu, runtime=None))
        queue = drivers.queue
        return {
            "mem_mb": drivers.memory_mb,
            "runtime": queue.runtime or queue.max_runtime,
            "cpus_per_task": drivers.cores,
            "slurm_partition": queue.partition,
            "slurm_account": queue.account,
            "qos": queue.qos,
            "constraint": queue.constraint,
            "slurm_extra": queue.extra,
        }

    def describe(self, resources: Mapping[str, Any]) -> str:
        return describe(resources)

    def price(self, resources: Mapping[str, Any]) -> None:
        return None

    def check(self, request: JobRequest) -> None:
        """What Slurm refuses depends on its own settings."""

    def _gpu_queue(self, request: MachineRequest, step: str) -> Queue:
        found = [queue for variant in request.gpu_variants for queue in self._queues_of(variant)]
        if not found:
            wanted = " or ".join(request.gpu_variants)
            asked = "GPUs" if wanted == ANY_GPU else f"GPUs of type {wanted}"
            raise SettingsError(f"step {step!r} asks for {asked}; {self._offer()}")
        large_enough = (queue for queue in found if queue.gpu_count is None or queue.gpu_count >= request.gpus)
        queue = next(large_enough, None)
        if queue is None:
            most = max(queue.gpu_count or 0 for queue in found)
            raise SettingsError(
                f"step {step!r} asks for {request.gpus} GPUs on each machine, but one of {_partition(found[0])} in"
                f" Slurm cluster {self.name} has {most}. Ask for at most {most}, and for more machines with replicas."
            )
        return queue

    def _queues_of(self, variant: str) -> list[Queue]:
        """Exact names first; a name without a size (`A100`) is served by any size (`A100-80G`)."""
        if variant == ANY_GPU:
            return list(self.gpus.values())
        wanted = canonical_gpu_variant(variant)
        named = {canonical_gpu_variant(name): queue for name, queue in self.gpus.items()}
        exact = [named[wanted]] if wanted in named else []
        return exact or [queue for name, queue in named.items() if name.startswith(f"{wanted}-")]

    def _offer(self) -> str:
        gpus = ", ".join(
            name if queue.gpu_count is None else f"{name} ({queue.gpu_count} a machine)"
            for name, queue in self.gpus.items()
        )
        return (
            f"Slurm cluster {self.name} has {f'GPUs {gpus}' if gpus else 'no GPUs'}. Change the step's resources, or"
            " the cluster's file in config/clusters (see docs/slurm.md)."
        )


def _partition(queue: Queue) -> str:
    return f"partition {queue.partition}" if queue.partition else "the default partition"


def read_site(name: str) -> Site | None:
    """The Slurm cluster of this name; None if its file does not mention Slurm."""
    block = read_block(find_cluster_file(name), "slurm")
    if not block:
        return None
    cpu = _queue(block, Queue())
    # Partitions, constraints and memory belong to other machines; the rest applies to all jobs of a user.
    base = replace(cpu, partition=None, constraint=None, max_memory_mb=None, preemptible=None)
    return Site(
        name=name,
        cpu=cpu,
        gpus={variant: _queue(entry or {}, base) for variant, entry in (block.get("gpus") or {}).items()},
        drivers=_drivers(block.get("drivers"), replace(cpu, runtime=None)),
        environments=block.get("environments"),
        trust=tuple(block.get("trust") or ()),
    )


def _drivers(given: Mapping[str, Any] | None, base: Queue) -> DriverQueue | None:
    """Where drivers go. A different partition has other limits than `base`; a driver may stay as long as it allows."""
    if not given:
        return None
    base = base if given.get("partition") is None else replace(base, max_runtime=None, constraint=None)
    sizes: dict[str, int] = {}
    if given.get("cores") is not None:
        sizes["cores"] = given["cores"]
    if given.get("memory") is not None:
        sizes["memory_mb"] = parse_memory(given["memory"]) // MEGABYTE
    return DriverQueue(_queue(given, base), **sizes)


_READ: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "partition": ("partition", str),
    "account": ("account", str),
    "qos": ("qos", str),
    "constraint": ("constraint", str),
    "extra": ("extra", str),
    "tasks_at_once": ("tasks_at_once", int),
    "runtime": ("runtime", parse_minutes),
    "max_runtime": ("max_runtime", parse_minutes),
    "max_memory": ("max_memory_mb", lambda text: parse_memory(text) // MEGABYTE),
    "gres": ("gres", str),
    "count": ("gpu_count", int),
}
"""For each key of a queue: the field of `Queue`, and how its value is converted."""


def _queue(given: Mapping[str, Any], base: Queue) -> Queue:
    """What is given, and for the rest what applies to all."""
    fields = {field: read(given[key]) for key, (field, read) in _READ.items() if given.get(key) is not None}
    queue = replace(base, **fields)
    inner = given.get("preemptible")
    return queue if inner is None else replace(queue, preemptible=_queue(inner, queue))
