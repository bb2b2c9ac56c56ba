"""A cluster without a file: its partitions and GPUs, as reported by Slurm.

Enough to send steps to machines that have what they ask for. What Slurm cannot say (which account to use, which of two
A100 partitions has the larger memory) belongs in `config/clusters/<name>.yaml`; `marin-rules cluster discover` prints a
first version of that file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from marin_rules.clusters.slurm.commands import run_command
from marin_rules.clusters.slurm.configuration import read_configuration
from marin_rules.clusters.slurm.site import Queue, Site
from marin_rules.units import memory_text, minutes_text, parse_clock

_GPU = re.compile(r"gpu(?::(?P<type>[^:,()]+))?:(?P<count>[0-9]+)")
_PLAIN_GPU = "GPU"
"""The name for GPUs whose type Slurm does not report."""


@dataclass(frozen=True)
class _Row:
    partition: str
    is_default: bool
    max_runtime: int | None
    memory_mb: int
    gpus: tuple[tuple[str, int], ...]


def discover_site() -> Site:
    """The cluster of this machine."""
    name = read_configuration().get("ClusterName") or "slurm"
    rows = [_row(line) for line in run_command("sinfo", "--noheader", "--format=%P|%a|%l|%m|%G").splitlines()]
    return _site(name, [row for row in rows if row is not None])


def _site(name: str, rows: Iterable[_Row]) -> Site:
    cpu: Queue | None = None
    fallback: Queue | None = None
    gpus: dict[str, Queue] = {}
    for row in rows:
        queue = Queue(partition=row.partition, max_runtime=row.max_runtime, max_memory_mb=row.memory_mb)
        if row.is_default:
            cpu = _larger(cpu, queue)
        fallback = _larger(fallback, queue) if fallback is None or fallback.partition == row.partition else fallback
        for kind, count in row.gpus:
            gres = None if kind == _PLAIN_GPU else kind
            gpus.setdefault(kind.upper(), replace(queue, gres=gres, gpu_count=count))
    return Site(name=name, cpu=cpu or fallback or Queue(), gpus=gpus)


def _larger(one: Queue | None, other: Queue) -> Queue:
    return other if one is None or (other.max_memory_mb or 0) > (one.max_memory_mb or 0) else one


def _row(line: str) -> _Row | None:
    """One kind of machine in one partition; None for a partition that accepts no jobs."""
    partition, state, limit, memory, gres = line.split("|")
    if state != "up":
        return None
    seconds = parse_clock(limit)  # None for `infinite`.
    found = [(match["type"] or _PLAIN_GPU, int(match["count"])) for match in _GPU.finditer(gres)]
    return _Row(
        partition=partition.rstrip("*"),
        is_default=partition.endswith("*"),
        max_runtime=None if seconds is None else seconds // 60,
        memory_mb=int(memory.rstrip("+")),
        gpus=tuple(found),
    )


def cluster_file_text(site: Site) -> str:
    """The cluster as a first version of its file."""
    lines = [
        f"# Slurm cluster {site.name}, as reported by sinfo. See config/clusters/README.md for the other keys.",
        "slurm:",
        *_queue_lines(site.cpu, "  "),
        "  # account: my-account",
        "  # runtime: 4h",
    ]
    if site.gpus:
        lines.append("  gpus:")
        for name, queue in site.gpus.items():
            lines += [f"    {name}:", *_queue_lines(queue, "      ")]
    return "\n".join(lines) + "\n"


def _queue_lines(queue: Queue, indent: str) -> list[str]:
    fields = {
        "partition": queue.partition,
        "gres": queue.gres,
        "count": queue.gpu_count,
        "max_runtime": None if queue.max_runtime is None else minutes_text(queue.max_runtime),
        "max_memory": None if queue.max_memory_mb is None else memory_text(queue.max_memory_mb),
    }
    return [f"{indent}{key}: {value}" for key, value in fields.items() if value is not None]
