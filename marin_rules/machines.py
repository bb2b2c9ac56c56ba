"""What a step asks of the machines that run it, in plain numbers: what a scheduler counts in.

Made from a `ResourceConfig` when the experiment is planned, and carried by the plan. Where the machines are, and what
they are called there, is up to the room of each cluster. Pure: no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from marin_rules.remote import RemoteCallable
from marin_rules.resources import GpuConfig, ResourceConfig, TpuConfig
from marin_rules.steps import ExecutorStep
from marin_rules.units import MEGABYTE, memory_text, parse_memory

ANY_GPU = "auto"
"""Stands for GPUs of whatever kind."""


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """One kind of machine, and how many of them. Amounts are for each machine."""

    cpu: int
    memory_mb: int
    disk_mb: int
    replicas: int = 1
    """Machines that run the step together, one process on each."""

    gpus: int = 0
    gpu_variants: tuple[str, ...] = ()
    """Names of GPUs that would do, the preferred one first; `auto` for any."""

    tpus: tuple[str, ...] = ()
    """Types of TPU slices that would do, the preferred one first; all have as many hosts. `replicas` counts hosts."""

    tpu_topology: str | None = None
    preemptible: bool = True
    zone: str | None = None
    """The one zone of a cloud that would do; None for any."""

    image: str | None = None
    """The container to run in; None leaves that to the cluster."""

    @classmethod
    def from_resources(cls, resources: ResourceConfig) -> Self:
        device = resources.device
        gpu = device if isinstance(device, GpuConfig) else None
        tpu = device if isinstance(device, TpuConfig) else None
        return cls(
            cpu=math.ceil(resources.cpu),
            memory_mb=_megabytes(resources.ram),
            disk_mb=_megabytes(resources.disk),
            replicas=resources.replicas,
            gpus=gpu.count if gpu else 0,
            gpu_variants=(gpu.variant, *(resources.device_alternatives or ())) if gpu else (),
            tpus=(tpu.variant, *(resources.device_alternatives or ())) if tpu else (),
            tpu_topology=tpu.topology if tpu else None,
            preemptible=resources.preemptible,
            zone=resources.zone,
            image=resources.image,
        )

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        lists = ("gpu_variants", "tpus")
        return cls(**{**fields, **{name: tuple(fields[name]) for name in lists}})

    def to_fields(self) -> dict[str, Any]:
        """The request as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        """For people: `2 x (4 CPUs, 16G, 8 A100-80G)`."""
        parts = [f"{self.cpu} {'CPU' if self.cpu == 1 else 'CPUs'}", memory_text(self.memory_mb)]
        if self.gpus:
            kinds = ["GPU" if variant == ANY_GPU else variant for variant in self.gpu_variants]
            parts.append(f"{self.gpus} {' or '.join(kinds)}")
        if self.tpus:
            parts.append(f"TPU {' or '.join(self.tpus)}")
        machine = ", ".join(parts)
        return machine if self.replicas == 1 else f"{self.replicas} x ({machine})"


def resources_of(step: ExecutorStep[Any]) -> ResourceConfig | None:
    """What a step asks for: its own resources win over those of its function. None runs beside the driver."""
    if step.resources is not None:
        return step.resources
    return step.fn.resources if isinstance(step.fn, RemoteCallable) else None


def tasks_of(step: ExecutorStep[Any]) -> int | None:
    """How many tasks a step is divided into: its own setting wins over that of its function. None if it is not
    divided."""
    if step.tasks is not None:
        return step.tasks
    return step.fn.tasks if isinstance(step.fn, RemoteCallable) else None


def _megabytes(text: str) -> int:
    """Rounded up: less than what was asked for would not do."""
    return -(-parse_memory(text) // MEGABYTE)
