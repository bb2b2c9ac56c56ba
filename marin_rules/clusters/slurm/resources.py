"""What a job asks of Slurm, by the names that Snakemake's Slurm plug-in has for it: pure.

These are the names that users write in `set-resources`, so that what a profile says of a step wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from marin_rules.machines import MachineRequest
from marin_rules.units import memory_text, minutes_text

if TYPE_CHECKING:
    from marin_rules.clusters.slurm.site import Queue

RESOURCE_NAMES = (
    "mem_mb",
    "disk_mb",
    "runtime",
    "gres",
    "nodes",
    "cpus_per_task",
    "slurm_partition",
    "slurm_account",
    "qos",
    "constraint",
    "slurm_extra",
    "tasks_at_once",
)


def job_resources(request: MachineRequest, queue: Queue, attempt: int) -> dict[str, Any]:
    """Memory and time grow with each attempt, up to what the partition has. None leaves a choice to Slurm."""
    return {
        "mem_mb": _grown(request.memory_mb, attempt, queue.max_memory_mb),
        "disk_mb": request.disk_mb,
        "runtime": None if queue.runtime is None else _grown(queue.runtime, attempt, queue.max_runtime),
        "gres": ":".join(["gpu", *([queue.gres] if queue.gres else []), str(request.gpus)]) if request.gpus else None,
        "nodes": request.replicas,
        "cpus_per_task": request.cpu,
        "slurm_partition": queue.partition,
        "slurm_account": queue.account,
        "qos": queue.qos,
        "constraint": queue.constraint,
        "slurm_extra": queue.extra,
        "tasks_at_once": queue.tasks_at_once,
    }


def _grown(amount: int, attempt: int, most: int | None) -> int:
    grown = amount * attempt
    return grown if most is None else max(amount, min(grown, most))


def describe(resources: Mapping[str, Any]) -> str:
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
