"""What a step needs from the machines that run it: cores, memory, disk, accelerators, places.

`ResourceConfig` is a request in the terms of experiments ("a v4-128", "eight H100"); the engine turns it
into a scheduler's options, machine types or queued TPU resources. Nothing here talks to a cluster or a cloud,
and a step's resources never enter its identity: it keeps its path when it moves to other machines. Only a
`ResourceConfig` that somebody wraps in `versioned()` does, so fields, defaults and their JSON are Marin's.

A wrong value is refused when the config is made, with the value and what exists instead. The config can be changed
afterwards, as Marin's can, so `check_resources` checks it again when a step is planned. `replicas` counts machines
(hosts), never slices: a step on TPUs gets whole slices.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Self, TypedDict, Unpack

from marin_rules.units import parse_memory


# Peak dense matrix speed of one device in teraFLOP/s, without the sparsity that headlines count in.
# GPUs: figures of NVIDIA's data sheets as others quote them, gathered November 2026; not read at the source.
# TPUs, further below: Google's Cloud TPU pages.
def _speeds(half: float, fp8: float | None = None) -> Mapping[str, float]:
    """By number format: a GPU multiplies bf16 as fast as fp16."""
    return {"bf16": half, "fp16": half} | ({} if fp8 is None else {"fp8": fp8})


_A100 = _speeds(312.0)
_H100_SXM = _speeds(989.5, fp8=1979.0)
_GPU_TERAFLOPS: Mapping[str, Mapping[str, float]] = {
    "A10": _speeds(125.0),
    "A10G": _speeds(70.0),  # unconfirmed: slower than an A10, but some tables repeat the A10's 125
    "A40": _speeds(149.7),
    "A100": _A100,
    "A100-40G": _A100,
    "A100-80G": _A100,
    "B200": _speeds(2250.0, fp8=4500.0),
    "GB200": _speeds(2500.0, fp8=5000.0),
    "H100": _H100_SXM,
    "H100-80G": _H100_SXM,
    "H100-MEGA-80G": _H100_SXM,
    "H100-NVL": _speeds(835.0),
    "H100-PCIE": _speeds(756.5, fp8=1513.0),
    "H200": _H100_SXM,
    "H200-141G": _H100_SXM,
    "L4": _speeds(121.0, fp8=242.0),
    "L40": _speeds(181.0, fp8=362.0),
    "L40S": _speeds(362.0, fp8=733.0),
    # T4 and V100 have no bf16 units: this is their fp16 speed, the format one trains with on them.
    "T4": _speeds(65.0),
    "V100": _speeds(125.0),
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

    scoped_memory_kilobytes: int | None = None
    """How much of a chip's vector memory Marin lets one kernel use; None leaves it to the compiler."""

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
            teraflops={"bf16": 275.0, "int8": 275.0},
        ),
        _TpuGeneration(
            name="v5litepod",
            cores_per_chip=1,
            sizes=(1, 2, 4, 8, *_POWERS_TO_256),  # 2 is in Marin's table, and on no page of Google's
            single_vm_chips=(1, 2, 4, 8),
            teraflops={"bf16": 197.0, "int8": 393.0},
            scoped_memory_kilobytes=50_000,
        ),
        _TpuGeneration(
            name="v5p",
            cores_per_chip=2,
            sizes=(8, 16, 32, 64, *range(128, 96 * 128 + 1, 128)),
            single_vm_chips=(4,),
            teraflops={"bf16": 459.0, "int8": 918.0},
            scoped_memory_kilobytes=50_000,
        ),
        _TpuGeneration(
            name="v6e",
            cores_per_chip=1,
            sizes=(1, 4, 8, *_POWERS_TO_256),
            single_vm_chips=(1, 4, 8),
            teraflops={"bf16": 918.0, "int8": 1836.0},
            scoped_memory_kilobytes=98_304,
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


ANY_REGION = "*"
"""Among `regions`: anywhere, as without any. In Marin a job without regions runs where its parent does."""

type DeviceKind = Literal["cpu", "gpu", "tpu"]


@dataclass(frozen=True)
class CpuConfig:
    """No accelerator."""

    kind: DeviceKind = "cpu"
    variant: str = "cpu"

    def __post_init__(self) -> None:
        _require_kind(self, "cpu")

    def chip_count(self) -> int:
        """None: a CPU is not counted as a chip."""
        return 0

    def device_flops(self, dtype: str = "bf16") -> float:
        """Always a NotImplementedError: the speed of a CPU is not in any table here."""
        known = ", ".join([*_GPU_TERAFLOPS, *(f"{name}-N" for name in _TPU_GENERATIONS)])
        raise NotImplementedError(f"no peak FLOP/s known for a CPU in {dtype!r}; known devices: {known}")

    def default_env_vars(self) -> dict[str, str]:
        """What a process that uses the device should find in its environment."""
        return {"JAX_PLATFORMS": "cpu"}


@dataclass(frozen=True, eq=False)
class GpuConfig:
    """GPUs of one kind on each machine. Equal if the names are the same GPU: `A100-80G` is `a100-80gb`."""

    variant: str
    """The GPU's name as the cluster spells it, kept as written; "auto" takes any."""

    kind: DeviceKind = "gpu"

    count: int = 1
    """GPUs on each machine."""

    def __post_init__(self) -> None:
        _require_text("GPU variant", self.variant)
        _require_kind(self, "gpu", f"write GpuConfig({self.variant!r}, count={self.kind!r})")
        _require_count("GPU count", self.count)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GpuConfig):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, int]:
        return canonical_gpu_variant(self.variant), self.count

    def chip_count(self) -> int:
        """GPUs on one machine."""
        return self.count

    def device_flops(self, dtype: str = "bf16") -> float:
        """Peak dense FLOP/s of one GPU."""
        teraflops = _GPU_TERAFLOPS.get(canonical_gpu_variant(self.variant))
        if teraflops is None:
            known = ", ".join(_GPU_TERAFLOPS)
            raise ValueError(f"no peak FLOP/s known for GPU {self.variant!r}; known GPUs: {known}")
        return _peak_flops(f"GPU {self.variant!r}", teraflops, dtype)

    def total_flops(self, dtype: str = "bf16") -> float:
        """Peak dense FLOP/s of all GPUs of one machine."""
        return self.device_flops(dtype) * self.count

    def default_env_vars(self) -> dict[str, str]:
        """What a process that uses the device should find in its environment."""
        return {"JAX_PLATFORMS": ""}


@dataclass(frozen=True)
class TpuConfig:
    """A TPU slice."""

    variant: str
    """Google's accelerator type, as in `v4-128`; one of `TPU_TOPOLOGIES`."""

    kind: DeviceKind = "tpu"

    topology: str | None = None
    """How the chips are laid out, as in `4x4x4`, where the type allows several; None leaves it to Google."""

    def __post_init__(self) -> None:
        _require_text("TPU variant", self.variant)
        _require_kind(self, "tpu", f"write TpuConfig({self.variant!r}, topology={self.kind!r})")
        chips = tpu_topology(self.variant).chip_count
        if self.topology is None:
            return
        _require_text("TPU topology", self.topology)
        if re.fullmatch(r"[1-9][0-9]*(x[1-9][0-9]*){1,2}", self.topology) is None:
            raise ValueError(f"TPU topology {self.topology!r} is not a shape: write '2x4' or '4x4x8'")
        laid_out = math.prod(int(side) for side in self.topology.split("x"))
        if laid_out != chips:
            raise ValueError(f"TPU topology {self.topology!r} has {laid_out} chips, but a {self.variant} has {chips}")

    def chip_count(self) -> int:
        """Chips that one host of the slice sees, as Marin counts them; `tpu_topology` knows those of the slice."""
        return tpu_topology(self.variant).chips_per_vm

    def vm_count(self) -> int:
        """Hosts of the slice."""
        return tpu_topology(self.variant).vm_count

    def device_flops(self, dtype: str = "bf16") -> float:
        """Peak dense FLOP/s of one chip."""
        return _peak_flops(f"TPU {self._generation.name}", self._generation.teraflops, dtype)

    def total_flops(self, dtype: str = "bf16") -> float:
        """Peak dense FLOP/s of the chips of one host."""
        return self.device_flops(dtype) * self.chip_count()

    def default_env_vars(self) -> dict[str, str]:
        """What a process that uses the device should find in its environment."""
        kilobytes = self._generation.scoped_memory_kilobytes
        if kilobytes is None:
            return {"JAX_PLATFORMS": ""}
        return {"JAX_PLATFORMS": "", "LIBTPU_INIT_ARGS": f"--xla_tpu_scoped_vmem_limit_kib={kilobytes}"}

    @property
    def _generation(self) -> _TpuGeneration:
        return _TPU_GENERATIONS[self.variant.rpartition("-")[0]]


DeviceConfig = CpuConfig | GpuConfig | TpuConfig


class TpuOptions(TypedDict, total=False):
    """What `ResourceConfig.with_tpu` accepts besides the TPU; `slice_count` decides the replicas."""

    cpu: float
    ram: str
    disk: str
    preemptible: bool
    regions: Sequence[str] | None
    zone: str | None
    image: str | None


class ResourceOptions(TpuOptions, total=False):
    """What `with_cpu` and `with_gpu` accept besides the device."""

    replicas: int
    device_alternatives: Sequence[str] | None


@dataclass
class ResourceConfig:
    """What a step asks for. Amounts are for each replica. Plain data: it can be changed until its step is planned."""

    cpu: float = 1
    """Cores on each machine; where cores are counted whole, rounded up."""

    ram: str = "4g"
    """Memory of each machine, as `parse_memory` reads it."""

    disk: str = "16g"
    """Scratch disk of each machine, as `parse_memory` reads it."""

    device: DeviceConfig = field(default_factory=CpuConfig)
    """The accelerator of each machine, or none."""

    preemptible: bool = True
    """Whether the step may run on machines that can be preempted: cheaper, and the step is then run again."""

    regions: Sequence[str] | None = None
    """Cloud regions where the step may run; None, an empty list or `ANY_REGION` means any."""

    zone: str | None = None
    """The one cloud zone where the step may run; None means any."""

    replicas: int = 1
    """Machines (hosts) that run the step together; for a TPU, the hosts of all slices."""

    device_alternatives: Sequence[str] | None = None
    """Other variants that would do as well as `device`'s; TPUs must have as many hosts and chips a host."""

    image: str | None = None
    """The container image to run in; None means the engine's own environment."""

    def __post_init__(self) -> None:
        _require_amount("cpu", self.cpu)
        _require_count("replicas", self.replicas)
        _require_memory("ram", self.ram)
        _require_memory("disk", self.disk)
        if not isinstance(self.device, DeviceConfig):
            raise TypeError(
                f"device {self.device!r} is not a device: use CpuConfig(), GpuConfig('H100') or TpuConfig('v4-8')"
            )
        _require_names("regions", self.regions)
        _require_names("device_alternatives", self.device_alternatives)
        if not self.device_alternatives:
            return
        if isinstance(self.device, CpuConfig):
            raise ValueError(f"device_alternatives {self.device_alternatives!r} need a GPU or TPU as device")
        if isinstance(self.device, TpuConfig):
            _require_same_hosts(self.device.variant, self.device_alternatives)

    @classmethod
    def with_cpu(cls, **options: Unpack[ResourceOptions]) -> Self:
        """Machines without accelerators."""
        return cls(device=CpuConfig(), **options)

    @classmethod
    def with_gpu(cls, gpu_type: str = "auto", count: int = 1, **options: Unpack[ResourceOptions]) -> Self:
        """Machines with `count` GPUs each; "auto" takes any kind."""
        return cls(device=GpuConfig(gpu_type, count=count), **options)

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
        return self.device.chip_count() * self.replicas

    def device_flops(self, dtype: str = "bf16") -> float:
        """Peak dense FLOP/s of one GPU or TPU chip; an error where none is known."""
        return self.device.device_flops(dtype)

    def total_flops(self, dtype: str = "bf16") -> float:
        """Peak dense FLOP/s of all chips together; without an accelerator the token value that Marin gives a CPU."""
        if isinstance(self.device, CpuConfig):
            return _CPU_FLOPS
        return self.device_flops(dtype) * self.chip_count()


_CPU_FLOPS = 100e9


def check_resources(resources: ResourceConfig) -> None:
    """Refuse what a step cannot run with, as the config is now: values it may not have, or a part of a TPU slice."""
    resources.__post_init__()
    if not isinstance(resources.device, TpuConfig):
        return
    variant, hosts = resources.device.variant, resources.device.vm_count()
    if resources.replicas % hosts:
        raise ValueError(
            f"replicas={resources.replicas} is not a whole number of slices: a {variant} has {hosts} hosts; use"
            f" ResourceConfig.with_tpu({variant!r}, slice_count=...)"
        )


def _require_amount(name: str, value: float) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} {value!r} is not a number")
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value}: it must be more than 0")


def _require_kind(device: CpuConfig | GpuConfig | TpuConfig, kind: DeviceKind, advice: str = "leave it out") -> None:
    """Refuse a device whose kind is not its class's. The second argument is the kind, as in Marin."""
    if device.kind != kind:
        raise ValueError(f"kind is {device.kind!r}, and that of a {type(device).__name__} is {kind!r}: {advice}")


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


def _require_names(name: str, values: Sequence[str] | None) -> None:
    """Refuse the classic mistake of one string where a list of them is meant."""
    if isinstance(values, str):
        raise TypeError(f"{name} {values!r} is one string: write a list, [{values!r}]")
    for value in values or ():
        _require_text(name, value)


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
