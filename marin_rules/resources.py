"""What a step needs from the machines that run it: cores, memory, disk, accelerators, places.

`ResourceConfig` is a request in the words of experiments ("a v4-128", "eight H100"); the engine turns it
into a scheduler's options, machine types or queued TPU resources. Nothing here talks to a cluster or a cloud,
and resources never enter a step's identity: a step keeps its path when it moves to other machines.

A config that exists is sound: a wrong value is refused when the config is made, with the value and what
exists instead. `replicas` counts machines (hosts), never slices: a TPU request is for whole slices.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self, TypedDict, Unpack

from marin_rules.units import parse_memory

# Peak dense matrix speed of one device in teraFLOP/s, without the sparsity that headlines count in.
# GPUs: figures of NVIDIA's data sheets as others quote them, gathered November 2026; not read at the source.
# TPUs, further below: Google's Cloud TPU pages.
_A100 = {"bf16": 312.0}
_H100_SXM = {"bf16": 989.0, "fp8": 1979.0}
_GPU_TERAFLOPS: Mapping[str, Mapping[str, float]] = {
    "A10": {"bf16": 125.0},
    "A10G": {"bf16": 70.0},  # unconfirmed: slower than an A10, but some tables repeat the A10's 125
    "A40": {"bf16": 149.7},
    "A100": _A100,
    "A100-40G": _A100,
    "A100-80G": _A100,
    "B200": {"bf16": 2250.0, "fp8": 4500.0},
    "GB200": {"bf16": 2500.0, "fp8": 5000.0},
    "H100": _H100_SXM,
    "H100-80G": _H100_SXM,
    "H100-MEGA-80G": _H100_SXM,
    "H100-NVL": {"bf16": 835.0},
    "H100-PCIE": {"bf16": 756.0, "fp8": 1513.0},
    "H200": _H100_SXM,
    "H200-141G": _H100_SXM,
    "L4": {"bf16": 121.0, "fp8": 242.0},
    "L40": {"bf16": 181.0, "fp8": 362.0},
    "L40S": {"bf16": 362.0, "fp8": 733.0},
    # T4 and V100 have no bf16 units: this is their fp16 speed, the format one trains with on them.
    "T4": {"bf16": 65.0},
    "V100": {"bf16": 125.0},
}

_VENDOR_PREFIX = re.compile(r"^(?:NVIDIA-)?(?:TESLA-)?")
_GIGABYTES_SUFFIX = re.compile(r"(?<=[0-9])GB$")


def canonical_gpu_variant(variant: str) -> str:
    """The spelling under which GPU names are compared: `nvidia-a100-80gb`, `a100-80g` -> `A100-80G`."""
    upper = re.sub(r"[\s_]+", "-", variant.strip().upper())
    return _GIGABYTES_SUFFIX.sub("G", _VENDOR_PREFIX.sub("", upper))


def _peak_flops(device: str, teraflops: Mapping[str, float], dtype: str) -> float:
    if dtype not in teraflops:
        raise ValueError(f"no peak FLOP/s known for {device} in {dtype!r}; known: {', '.join(teraflops)}")
    return teraflops[dtype] * 1e12


@dataclass(frozen=True)
class TpuTopology:
    """The shape of one TPU slice: how many chips, spread over how many virtual machines."""

    name: str
    """Google's accelerator type, as in `v4-128`."""

    chip_count: int
    """Chips in the whole slice."""

    host_count: int
    """Virtual machines of the slice; each of them runs the step's command."""

    chips_per_vm: int
    """Chips that one virtual machine sees."""

    @property
    def vm_count(self) -> int:
        """Another name for `host_count`, the one Marin uses."""
        return self.host_count


@dataclass(frozen=True)
class _TpuGeneration:
    name: str
    cores_per_chip: int
    """What the number in an accelerator type counts: 2 if TensorCores, 1 if chips."""

    sizes: tuple[int, ...]
    """The numbers that Google offers after the dash."""

    single_vm_chips: tuple[int, ...]
    """Chip counts that come as one virtual machine; all other slices have 4 chips a machine."""

    teraflops: Mapping[str, float]
    """Peak dense speed of one chip by number format."""

    def topologies(self) -> list[TpuTopology]:
        return [self._topology(size) for size in self.sizes]

    def _topology(self, size: int) -> TpuTopology:
        chips = size // self.cores_per_chip
        chips_per_vm = chips if chips in self.single_vm_chips else 4
        return TpuTopology(f"{self.name}-{size}", chips, chips // chips_per_vm, chips_per_vm)


# v4 and v5p slices above 64 cores are built from cubes of 64 chips (128 cores): any number up to 96 for v5p,
# a few for v4. v5e ("v5litepod") and v6e pods have 256 chips. Chips and speeds are from the Cloud TPU pages;
# which v4 and v5p sizes have names is from tools that request them (November 2026).
_POWERS_TO_256 = (16, 32, 64, 128, 256)
_TPU_GENERATIONS: Mapping[str, _TpuGeneration] = {
    generation.name: generation
    for generation in (
        _TpuGeneration(
            name="v4",
            cores_per_chip=2,
            sizes=(8, *_POWERS_TO_256, 384, 512, 1024, 1536, 2048, 4096),
            single_vm_chips=(4,),
            teraflops={"bf16": 275.0},
        ),
        _TpuGeneration(
            name="v5litepod",
            cores_per_chip=1,
            sizes=(1, 4, 8, *_POWERS_TO_256),
            single_vm_chips=(1, 4, 8),
            teraflops={"bf16": 197.0},
        ),
        _TpuGeneration(
            name="v5p",
            cores_per_chip=2,
            sizes=(8, 16, 32, 64, *range(128, 96 * 128 + 1, 128)),
            single_vm_chips=(4,),
            teraflops={"bf16": 459.0},
        ),
        _TpuGeneration(
            name="v6e",
            cores_per_chip=1,
            sizes=(1, 4, 8, *_POWERS_TO_256),
            single_vm_chips=(1, 4, 8),
            teraflops={"bf16": 918.0},
        ),
    )
}

TPU_TOPOLOGIES: Mapping[str, TpuTopology] = MappingProxyType(
    {topology.name: topology for generation in _TPU_GENERATIONS.values() for topology in generation.topologies()}
)
"""Every TPU slice that can be asked for, by accelerator type."""


def tpu_topology(variant: str) -> TpuTopology:
    """The slice that an accelerator type names; ValueError with the nearest types if there is none."""
    try:
        return TPU_TOPOLOGIES[variant]
    except KeyError:
        near = ", ".join(_near_tpu_types(str(variant)))
        existing = ", ".join(f"{name}-N" for name in _TPU_GENERATIONS)
        hint = f"did you mean {near}? " if near else ""
        raise ValueError(f"unknown TPU type {variant!r}: {hint}there are {existing}") from None


def _near_tpu_types(variant: str) -> list[str]:
    """Up to three existing types: the nearest sizes of the same generation, else the most alike names."""
    name, _, size = variant.lower().rpartition("-")
    # Google's pages say v5e, its API v5litepod.
    generation = _TPU_GENERATIONS.get("v5litepod" if name == "v5e" else name)
    if generation is None or not size.isdecimal():
        return difflib.get_close_matches(variant.lower(), TPU_TOPOLOGIES, n=3)
    nearest = sorted(generation.sizes, key=lambda existing: abs(existing - int(size)))[:3]
    return [f"{generation.name}-{existing}" for existing in sorted(nearest)]


@dataclass(frozen=True)
class CpuConfig:
    """No accelerator."""

    def chips_per_replica(self) -> int:
        """None: a CPU is not counted as a chip."""
        return 0

    def device_flops(self, dtype: str = "bf16") -> float:
        """Always a ValueError: the speed of a CPU is not in any table here."""
        known = ", ".join([*_GPU_TERAFLOPS, *(f"{name}-N" for name in _TPU_GENERATIONS)])
        raise ValueError(f"no peak FLOP/s known for a CPU in {dtype!r}; known devices: {known}")


@dataclass(frozen=True, eq=False)
class GpuConfig:
    """GPUs of one kind on each machine. Equal if the names are the same GPU: `A100-80G` is `a100-80gb`."""

    variant: str
    """The GPU's name as the cluster spells it, kept as written; "auto" takes any."""

    count: int = 1
    """GPUs on each machine."""

    def __post_init__(self) -> None:
        _require_text("GPU variant", self.variant)
        _require_count("GPU count", self.count)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GpuConfig):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, int]:
        return canonical_gpu_variant(self.variant), self.count

    def chips_per_replica(self) -> int:
        """GPUs on one machine."""
        return self.count

    def device_flops(self, dtype: str = "bf16") -> float:
        """Peak dense FLOP/s of one GPU."""
        teraflops = _GPU_TERAFLOPS.get(canonical_gpu_variant(self.variant))
        if teraflops is None:
            known = ", ".join(_GPU_TERAFLOPS)
            raise ValueError(f"no peak FLOP/s known for GPU {self.variant!r}; known GPUs: {known}")
        return _peak_flops(f"GPU {self.variant!r}", teraflops, dtype)


@dataclass(frozen=True)
class TpuConfig:
    """A TPU slice."""

    variant: str
    """Google's accelerator type, as in `v4-128`; one of `TPU_TOPOLOGIES`."""

    topology: str | None = None
    """How the chips are laid out, as in `4x4x4`, where the type allows several; None leaves it to Google."""

    def __post_init__(self) -> None:
        _require_text("TPU variant", self.variant)
        chips = tpu_topology(self.variant).chip_count
        if self.topology is None:
            return
        _require_text("TPU topology", self.topology)
        if re.fullmatch(r"[1-9][0-9]*(x[1-9][0-9]*){1,2}", self.topology) is None:
            raise ValueError(f"TPU topology {self.topology!r} is not a shape: write '2x4' or '4x4x8'")
        laid_out = math.prod(int(side) for side in self.topology.split("x"))
        if laid_out != chips:
            raise ValueError(f"TPU topology {self.topology!r} has {laid_out} chips, but a {self.variant} has {chips}")

    def chips_per_replica(self) -> int:
        """Chips that one host of the slice sees."""
        return tpu_topology(self.variant).chips_per_vm

    def device_flops(self, dtype: str = "bf16") -> float:
        """Peak dense FLOP/s of one chip."""
        generation = _TPU_GENERATIONS[self.variant.rpartition("-")[0]]
        return _peak_flops(f"TPU {generation.name}", generation.teraflops, dtype)


DeviceConfig = CpuConfig | GpuConfig | TpuConfig


class TpuOptions(TypedDict, total=False):
    """What `ResourceConfig.with_tpu` takes besides the TPU; `slice_count` decides the replicas."""

    cpu: int
    ram: str
    disk: str
    preemptible: bool
    regions: Sequence[str] | None
    zone: str | None
    image: str | None


class ResourceOptions(TpuOptions, total=False):
    """What `with_cpu` and `with_gpu` take besides the device."""

    replicas: int
    device_alternatives: Sequence[str] | None


@dataclass(frozen=True)
class ResourceConfig:
    """What a step asks for. Amounts are for each replica; sequences are kept as tuples."""

    cpu: int = 1
    """Cores on each machine."""

    ram: str = "4g"
    """Memory of each machine, as `parse_memory` reads it."""

    disk: str = "16g"
    """Scratch disk of each machine, as `parse_memory` reads it."""

    device: DeviceConfig = field(default_factory=CpuConfig)
    """The accelerator of each machine, or none."""

    preemptible: bool = True
    """Whether the step may run on machines that can be taken away: cheaper, and it will be run again."""

    regions: Sequence[str] | None = None
    """Cloud regions where the step may run; None means any."""

    zone: str | None = None
    """The one cloud zone where the step may run; None means any."""

    replicas: int = 1
    """Machines (hosts) that run the step together; for a TPU, the hosts of all slices."""

    device_alternatives: Sequence[str] | None = None
    """Other variants that would do as well as `device`'s; TPUs must have as many hosts and chips a host."""

    image: str | None = None
    """The container image to run in; None means the engine's own environment."""

    def __post_init__(self) -> None:
        _require_count("cpu", self.cpu)
        _require_count("replicas", self.replicas)
        _require_memory("ram", self.ram)
        _require_memory("disk", self.disk)
        if not isinstance(self.device, DeviceConfig):
            raise TypeError(
                f"device {self.device!r} is not a device: use CpuConfig(), GpuConfig('H100') or TpuConfig('v4-8')"
            )
        for name in ("regions", "device_alternatives"):
            # Tuples make the config hashable; a frozen dataclass leaves no other way to put them in.
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        self._check_alternatives()
        self._check_whole_slices()

    def _check_alternatives(self) -> None:
        if self.device_alternatives is None:
            return
        if isinstance(self.device, CpuConfig):
            raise ValueError(f"device_alternatives {self.device_alternatives!r} need a GPU or TPU as device")
        if isinstance(self.device, TpuConfig):
            _require_same_hosts(self.device.variant, self.device_alternatives)

    def _check_whole_slices(self) -> None:
        if not isinstance(self.device, TpuConfig):
            return
        hosts = tpu_topology(self.device.variant).host_count
        if self.replicas % hosts:
            raise ValueError(
                f"replicas={self.replicas} is not a whole number of slices: a {self.device.variant} has "
                f"{hosts} hosts; use ResourceConfig.with_tpu({self.device.variant!r}, slice_count=...)"
            )

    @classmethod
    def with_cpu(cls, **options: Unpack[ResourceOptions]) -> Self:
        """Machines without accelerators."""
        return cls(device=CpuConfig(), **options)

    @classmethod
    def with_gpu(cls, gpu_type: str = "auto", count: int = 1, **options: Unpack[ResourceOptions]) -> Self:
        """Machines with `count` GPUs each; "auto" takes any kind."""
        return cls(device=GpuConfig(gpu_type, count), **options)

    @classmethod
    def with_tpu(cls, tpu_type: str | Sequence[str], *, slice_count: int = 1, **options: Unpack[TpuOptions]) -> Self:
        """`slice_count` TPU slices, with one replica a host.

        Several types mean "any of these": the first is the device, the others its alternatives, and all must
        have as many hosts and chips a host.
        """
        if refused := {"replicas", "device_alternatives"} & options.keys():
            raise TypeError(
                f"with_tpu does not take {', '.join(sorted(refused))}: "
                "give slice_count for more slices and a list of types for alternatives"
            )
        _require_count("slice_count", slice_count)
        types = [tpu_type] if isinstance(tpu_type, str) else list(tpu_type)
        if not types:
            raise ValueError("with_tpu needs at least one TPU type, as in 'v4-8'; the list is empty")
        device, *alternatives = types
        amounts: TpuOptions = {"cpu": 32, "ram": "128g", "disk": "50g", **options}
        return cls(
            device=TpuConfig(device),
            replicas=slice_count * tpu_topology(device).host_count,
            device_alternatives=alternatives or None,
            **amounts,
        )

    def chip_count(self) -> int:
        """Accelerator chips over all replicas; 0 without an accelerator."""
        return self.device.chips_per_replica() * self.replicas

    def device_flops(self, dtype: str = "bf16") -> float:
        """Peak dense FLOP/s of one GPU or TPU chip; ValueError where none is known."""
        return self.device.device_flops(dtype)

    def total_flops(self, dtype: str = "bf16") -> float:
        """Peak dense FLOP/s of all chips together."""
        return self.device_flops(dtype) * self.chip_count()


def _require_count(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} {value!r} is not a whole number")
    if value < 1:
        raise ValueError(f"{name} is {value}: it must be at least 1")


def _require_text(name: str, value: str) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} {value!r} is not a string")
    if not value.strip():
        raise ValueError(f"{name} is empty")


def _require_memory(name: str, text: str) -> None:
    try:
        parse_memory(text)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def _names(name: str, values: Sequence[str] | None) -> tuple[str, ...] | None:
    """`values` as a tuple, after the classic mistake of one string where a list of them is meant."""
    if values is None:
        return None
    if isinstance(values, str):
        raise TypeError(f"{name} {values!r} is one string: write a list, [{values!r}]")
    if not values:
        raise ValueError(f"{name} is empty: leave it None if any will do")
    for value in values:
        _require_text(name, value)
    return tuple(values)


def _require_same_hosts(variant: str, alternatives: Sequence[str]) -> None:
    wanted = tpu_topology(variant)
    for alternative in alternatives:
        offered = tpu_topology(alternative)
        if (offered.host_count, offered.chips_per_vm) != (wanted.host_count, wanted.chips_per_vm):
            raise ValueError(
                f"TPU types {variant} and {alternative} cannot stand in for each other: {_hosts(wanted)}, "
                f"but {_hosts(offered)}"
            )


def _hosts(topology: TpuTopology) -> str:
    return f"{topology.name} has vm_count {topology.vm_count} and chips_per_vm {topology.chips_per_vm}"
