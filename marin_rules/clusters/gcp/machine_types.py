"""Which machine of Compute Engine has the cores, memory and GPUs that a step asks for: pure, a table and a choice.

C4 and N4 are as Google's own pages have them, E2, N2, A2, A3 and G2 as Red Hat lists them (read November 2026; both
are in the tests). Unconfirmed, because no page with them was found: the sizes of a3-ultragpu and a4-highgpu, and how
many cores go with a T4 or V100. What a machine costs is not known here (see `prices`): of two that would do, the one
with fewer cores and less memory is taken to be the cheaper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from marin_rules.resources import canonical_gpu_variant

GIGABYTES_OF_A_CORE = 7.5
"""How much memory costs as much as a core, roughly, in every series."""

CPU_SERIES = ("e2", "n2")
"""Series for steps without a GPU, in this order, unless the cluster's file names one."""


@dataclass(frozen=True)
class MachineType:
    """A machine type, or one with GPUs attached to it."""

    name: str
    cpus: int
    memory_gb: float
    boot_disk: str = "pd-balanced"
    """What kind of disk it boots from: the newest series accept no other."""

    gpu: str | None = None
    """Compute Engine's name for its GPUs, such as `nvidia-l4`."""

    gpus: int = 0
    attached: bool = False
    """Whether the GPUs have to be requested: most of these machines come with theirs."""

    @property
    def series(self) -> str:
        return self.name.partition("-")[0]

    @property
    def family(self) -> str:
        """Its name without its size: `a2-highgpu`."""
        return self.name.rpartition("-")[0]

    @property
    def memory_mb(self) -> int:
        return int(self.memory_gb * 1024)

    @property
    def weight(self) -> float:
        """What it costs, in cores."""
        return self.cpus + self.memory_gb / GIGABYTES_OF_A_CORE

    def has(self, cpus: int, memory_mb: int, gpus: int = 0) -> bool:
        return self.cpus >= cpus and self.memory_mb >= memory_mb and self.gpus >= gpus


def _sizes(family: str, gigabytes: float, cpus: Sequence[int], boot_disk: str = "pd-balanced") -> list[MachineType]:
    return [MachineType(f"{family}-{count}", count, count * gigabytes, boot_disk) for count in cpus]


_HYPERDISK = "hyperdisk-balanced"
_N2 = (2, 4, 8, 16, 32, 48, 64, 80)
_N4 = (2, 4, 8, 16, 32, 48, 64, 80)
_C4 = (2, 4, 8, 16, 24, 32, 48, 96, 144, 192, 288)

_PLAIN = (
    *_sizes("e2-highcpu", 1, (2, 4, 8, 16, 32)),
    *_sizes("e2-standard", 4, (2, 4, 8, 16, 32)),
    *_sizes("e2-highmem", 8, (2, 4, 8, 16)),
    *_sizes("n2-highcpu", 1, (2, 4, 8, 16, 32, 48, 64, 80, 96)),
    *_sizes("n2-standard", 4, (*_N2, 96, 128)),
    *_sizes("n2-highmem", 8, _N2),
    MachineType("n2-highmem-96", 96, 768),
    MachineType("n2-highmem-128", 128, 864),
    *_sizes("n4-highcpu", 2, _N4, _HYPERDISK),
    *_sizes("n4-standard", 4, _N4, _HYPERDISK),
    *_sizes("n4-highmem", 8, _N4, _HYPERDISK),
    *_sizes("c4-highcpu", 2, _C4, _HYPERDISK),
    MachineType("c4-standard-2", 2, 7, _HYPERDISK),
    *_sizes("c4-standard", 3.75, _C4[1:], _HYPERDISK),
    MachineType("c4-highmem-2", 2, 15, _HYPERDISK),
    *_sizes("c4-highmem", 7.75, _C4[1:], _HYPERDISK),
)


def _with(gpu: str, *rows: tuple[str, int, float, int], boot_disk: str = "pd-balanced") -> list[MachineType]:
    return [MachineType(name, cpus, memory, boot_disk, gpu, gpus) for name, cpus, memory, gpus in rows]


def _attached(gpu: str, *rows: tuple[int, int]) -> list[MachineType]:
    """GPUs that are attached to machines of the n1 series: how many, and the most cores that go with them."""
    found = []
    for gpus, most in rows:
        for family, gigabytes in (("n1-standard", 3.75), ("n1-highmem", 6.5)):
            for cpus in (2, 4, 8, 16, 32, 64, 96):
                if cpus <= most:
                    name = f"{family}-{cpus}"
                    found.append(MachineType(name, cpus, cpus * gigabytes, "pd-balanced", gpu, gpus, attached=True))
    return found


_GPU_MACHINES: dict[str, Sequence[MachineType]] = {
    "L4": _with(
        "nvidia-l4",
        ("g2-standard-4", 4, 16, 1),
        ("g2-standard-8", 8, 32, 1),
        ("g2-standard-12", 12, 48, 1),
        ("g2-standard-16", 16, 64, 1),
        ("g2-standard-32", 32, 128, 1),
        ("g2-standard-24", 24, 96, 2),
        ("g2-standard-48", 48, 192, 4),
        ("g2-standard-96", 96, 384, 8),
    ),
    "A100-40G": _with(
        "nvidia-tesla-a100",
        ("a2-highgpu-1g", 12, 85, 1),
        ("a2-highgpu-2g", 24, 170, 2),
        ("a2-highgpu-4g", 48, 340, 4),
        ("a2-highgpu-8g", 96, 680, 8),
        ("a2-megagpu-16g", 96, 1360, 16),
    ),
    "A100-80G": _with(
        "nvidia-a100-80gb",
        ("a2-ultragpu-1g", 12, 170, 1),
        ("a2-ultragpu-2g", 24, 340, 2),
        ("a2-ultragpu-4g", 48, 680, 4),
        ("a2-ultragpu-8g", 96, 1360, 8),
    ),
    "H100-80G": _with(
        "nvidia-h100-80gb",
        ("a3-highgpu-1g", 26, 234, 1),
        ("a3-highgpu-2g", 52, 468, 2),
        ("a3-highgpu-4g", 104, 936, 4),
        ("a3-highgpu-8g", 208, 1872, 8),
    ),
    "H100-MEGA-80G": _with("nvidia-h100-mega-80gb", ("a3-megagpu-8g", 208, 1872, 8)),
    # Unconfirmed, down to the end.
    "H200-141G": _with("nvidia-h200-141gb", ("a3-ultragpu-8g", 224, 2952, 8), boot_disk=_HYPERDISK),
    "B200": _with("nvidia-b200", ("a4-highgpu-8g", 224, 3968, 8), boot_disk=_HYPERDISK),
    "T4": _attached("nvidia-tesla-t4", (1, 48), (2, 48), (4, 96)),
    "V100": _attached("nvidia-tesla-v100", (1, 12), (2, 24), (4, 48), (8, 96)),
}

GPU_NAMES = tuple(_GPU_MACHINES)
"""The GPUs of Compute Engine, as experiments call them."""

SERIES = tuple(dict.fromkeys(machine.series for machine in _PLAIN))
"""The series of machines without GPUs."""

_BY_NAME = {
    machine.name: replace(machine, gpu=None, gpus=0, attached=False) if machine.attached else machine
    for machine in chain(_PLAIN, *_GPU_MACHINES.values())
}


def gpu_names(variant: str) -> list[str]:
    """The names in `GPU_NAMES` of a GPU: itself or, of one that is named without its size (`A100`), each size."""
    wanted = canonical_gpu_variant(variant)
    return [wanted] if wanted in _GPU_MACHINES else [name for name in GPU_NAMES if name.startswith(f"{wanted}-")]


def plain_machine(cpus: int, memory_mb: int, series: Iterable[str] = CPU_SERIES) -> MachineType | None:
    """The smallest machine without GPUs, of the first series that has one large enough."""
    for name in series:
        found = _smallest(machine for machine in _PLAIN if machine.series == name and machine.has(cpus, memory_mb))
        if found is not None:
            return found
    return None


def gpu_machine(name: str, gpus: int, cpus: int, memory_mb: int) -> MachineType | None:
    """The smallest machine with at least this many GPUs; `name` is one of `GPU_NAMES`."""
    large_enough = [machine for machine in _GPU_MACHINES[name] if machine.has(cpus, memory_mb, gpus)]
    fewest = min((machine.gpus for machine in large_enough), default=0)
    return _smallest(machine for machine in large_enough if machine.gpus == fewest)


def largest(gpu: str | None = None, series: Iterable[str] = CPU_SERIES) -> MachineType:
    """The largest machine with this GPU, or of these series: for messages."""
    chosen = list(series)
    found = _GPU_MACHINES[gpu] if gpu else [machine for machine in _PLAIN if machine.series in chosen]
    return max(found, key=lambda machine: (machine.gpus, machine.memory_gb))


def machine_type(name: str) -> MachineType | None:
    """The machine type of this name, without what may be attached to it; None for one that is not in the table."""
    return _BY_NAME.get(name)


def attached_gpus(name: str) -> dict[str, tuple[int, ...]]:
    """What may be attached to a machine type: kinds of GPUs, and how many of each."""
    found: dict[str, tuple[int, ...]] = {}
    for machine in chain(*_GPU_MACHINES.values()):
        if machine.name == name and machine.attached and machine.gpu is not None:
            found[machine.gpu] = (*found.get(machine.gpu, ()), machine.gpus)
    return found


def boot_disk_of(machine_type: str) -> str:
    """What kind of disk a machine type boots from, even one that is not in the table."""
    known = _BY_NAME.get(machine_type)
    if known is not None:
        return known.boot_disk
    newest = ("c4-", "c4a-", "c4d-", "n4-", "n4d-", "z3-", "a4-")
    return _HYPERDISK if machine_type.startswith(newest) else "pd-balanced"


def _smallest(machines: Iterable[MachineType]) -> MachineType | None:
    return min(machines, key=lambda machine: machine.weight, default=None)
