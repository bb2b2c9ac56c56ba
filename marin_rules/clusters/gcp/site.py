"""A project of Google Cloud in the terms of its users: which machines its steps get, and where.

Converted from the `gcp:` block of `config/clusters/<name>.yaml`, whose keys `config/cluster.schema.yaml` checks. A
request that Batch or the project cannot serve is refused with what there is instead, before anything is submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from marin_rules.clusters.gcp import machine_types
from marin_rules.clusters.gcp.machine_types import CPU_SERIES, MachineType
from marin_rules.clusters.gcp.offers import Offer
from marin_rules.clusters.gcp.prices import hourly_price, price_tables
from marin_rules.clusters.gcp.resources import LONGEST_MINUTES, describe
from marin_rules.clusters.gcp.tpu_supply import TpuSupply, read_tpus, tpus_in_words
from marin_rules.clusters.prices import Price
from marin_rules.clusters.protocol import JobRequest
from marin_rules.errors import SettingsError
from marin_rules.geography import covers, region_of_zone
from marin_rules.machines import ANY_GPU, MachineRequest
from marin_rules.resources import tpu_topology
from marin_rules.settings.cluster_file import find_cluster_file, read_block
from marin_rules.units import memory_text, parse_minutes

_WORKER_MEMORY_MB = 2048
"""For the worker of a TPU step, whose own machines are the hosts of its slices."""

_DRIVER_MEMORY_MB = 4096
"""For Snakemake, the plan, and small steps that run beside it."""


@dataclass(frozen=True)
class Supply:
    """How machines of one kind are provisioned."""

    zones: tuple[str, ...] = ()
    """The zones; without any, all of the region."""

    spot: bool = True
    """Whether preemptible steps get Spot machines."""

    provisioning: str = "STANDARD"
    """How the others are provisioned, in Batch's terms."""

    reservation: str | None = None
    runtime: int | None = None
    """Time limit of a job in minutes, at its first attempt."""

    max_runtime: int = LONGEST_MINUTES
    tasks_at_once: int | None = None
    """How many tasks of an array step run at the same time; None leaves that to Batch."""


@dataclass(frozen=True)
class GcpSite:
    """A project. See `protocol.Site`."""

    name: str
    project: str
    regions: tuple[str, ...]
    """Where jobs may run; they run in the first."""

    plain: Supply = field(default_factory=Supply)
    """For steps without an accelerator."""

    gpus: Mapping[str, Supply] = field(default_factory=dict)
    """For steps with GPUs, by the name of the GPU in `machine_types.GPU_NAMES`, in the order of the file."""

    tpus: Mapping[str, TpuSupply] = field(default_factory=dict)
    """For steps with TPUs, by their generation as Google's API names it."""

    series: tuple[str, ...] = CPU_SERIES
    network: str | None = None
    subnetwork: str | None = None
    external_address: bool = True
    service_account: str | None = None
    image: str | None = None
    """The container that jobs run in; None runs them on the machine itself."""

    boot_image: str | None = None
    secrets: Mapping[str, str | None] = field(default_factory=dict)
    """Where the value of a variable is, as Secret Manager names it; None for one that jobs do not get."""

    labels: Mapping[str, str] = field(default_factory=dict)
    environments: str | None = None
    trust: tuple[str, ...] = ()

    @property
    def region(self) -> str:
        return self.regions[0]

    def near(self, data: Sequence[str] | None, zone: str | None, step: str) -> GcpSite:
        """The same project, restricted to regions where a step with data in these places can run: regions or
        multi-regions.

        `SettingsError` if there is none.
        """
        regions, limits = self.regions, []
        if data is not None:
            regions = tuple(region for region in regions if any(covers(place, region) for place in data))
            limits.append(f"the data of step {step!r} are in {' or '.join(data) or 'no region'}")
        if zone is not None:
            regions = tuple(region for region in regions if region == _region_of(zone, step))
            limits.append(f"step {step!r} asks for zone {zone}")
        if not regions:
            raise SettingsError(
                f"{' and '.join(limits)}, but cluster {self.name} runs jobs in {', '.join(self.regions)}: add the"
                " region to gcp.regions of its file, or choose a prefix or a zone in one of them"
            )
        return replace(self, regions=regions)

    def resources(
        self, request: MachineRequest, step: str, attempt: int = 1, regions: Sequence[str] | None = None
    ) -> Mapping[str, Any]:
        here = self.near(regions, request.zone, step)
        if request.tpus:
            return here._with_slices(request, step, attempt)
        return here._with_machines(request, step, attempt)

    def _with_machines(self, request: MachineRequest, step: str, attempt: int) -> Mapping[str, Any]:
        machine, supply = self._machine(request, step, request.memory_mb)
        memory = request.memory_mb
        if attempt > 1:
            # If no machine is that much larger, all the memory of the one that the first attempt had.
            larger = self._try_machine(request, request.memory_mb * attempt)
            memory = request.memory_mb * attempt if larger else machine.memory_mb
            machine, supply = larger or (machine, supply)
        zones = (request.zone,) if request.zone else self._zones(supply, f"step {step!r}")
        spot = request.preemptible and supply.spot
        return {
            "mem_mb": memory,
            "disk_mb": request.disk_mb,
            "runtime": None if supply.runtime is None else min(supply.runtime * attempt, supply.max_runtime),
            "nodes": request.replicas,
            "cpus_per_task": request.cpu,
            "tasks_at_once": supply.tasks_at_once,
            "gcp_region": self.region,
            "gcp_zones": " ".join(zones) or None,
            "gcp_machine_type": machine.name,
            "gcp_gpu": f"{machine.gpu}:{machine.gpus}" if machine.gpu else None,
            "gcp_provisioning": "SPOT" if spot else supply.provisioning,
            "gcp_reservation": None if spot else supply.reservation,
            "gcp_image": request.image,
        }

    def _with_slices(self, request: MachineRequest, step: str, attempt: int) -> Mapping[str, Any]:
        kinds = [kind for kind in request.tpus if kind.rpartition("-")[0] in self.tpus]
        if not kinds:
            raise SettingsError(f"step {step!r} asks for a TPU {request.tpus[0]}; {self._offer()}")
        offers = self.offers(
            kinds, request.preemptible, request.tpu_topology, (request.zone,) if request.zone else None
        )
        if not offers:
            raise SettingsError(
                f"step {step!r} asks for a TPU {' or '.join(kinds)} in {request.zone or ', '.join(self.regions)}, where"
                f" cluster {self.name} has none: {tpus_in_words(self.tpus)}. Choose a prefix there, or add zones to"
                " gcp.tpus of its file"
            )
        # The requested types that exist; the first offer is what the step is likely to get.
        kinds = list(dict.fromkeys(offer.accelerator for offer in offers))
        supply = self.tpus[kinds[0].rpartition("-")[0]]
        worker = machine_types.plain_machine(1, _WORKER_MEMORY_MB, self.series)
        assert worker is not None
        return {
            "mem_mb": request.memory_mb,
            "disk_mb": request.disk_mb,
            "runtime": None if supply.runtime is None else min(supply.runtime * attempt, supply.max_runtime),
            "nodes": 1,
            "cpus_per_task": request.cpu,
            "gcp_region": supply.worker_region or region_of_zone(offers[0].zone),
            "gcp_machine_type": worker.name,
            "gcp_provisioning": "STANDARD",
            "gcp_image": request.image,
            "gcp_tpu": " ".join(kinds),
            "gcp_tpu_topology": request.tpu_topology,
            "gcp_tpu_slices": request.replicas // tpu_topology(kinds[0]).host_count,
            "gcp_tpu_zones": " ".join(dict.fromkeys(offer.zone for offer in offers)),
            "gcp_tpu_provisioning": "SPOT" if any(offer.spot for offer in offers) else "STANDARD",
        }

    def offers(
        self, kinds: Sequence[str], preemptible: bool, topology: str | None = None, zones: Sequence[str] | None = None
    ) -> list[Offer]:
        """Where slices of these types may be available, in the order in which that is tried; `zones` narrow it down."""
        found: dict[Offer, None] = {}
        for kind in kinds:
            supply = self.tpus.get(kind.rpartition("-")[0])
            if supply is None:
                continue
            for offer in supply.offers(kind, preemptible, topology):
                if region_of_zone(offer.zone) in self.regions and (zones is None or offer.zone in zones):
                    found[offer] = None
        return list(found)

    def offers_for(self, resources: Mapping[str, Any]) -> list[Offer]:
        """Where the slices of a job with these resources may be available; none for a job without any."""
        kinds = str(resources.get("gcp_tpu") or "").split()
        zones = str(resources.get("gcp_tpu_zones") or "").split() or None
        is_spot = resources.get("gcp_tpu_provisioning") == "SPOT"
        return self.offers(kinds, is_spot, resources.get("gcp_tpu_topology"), zones)

    def driver_resources(self) -> Mapping[str, Any]:
        machine = machine_types.plain_machine(1, _DRIVER_MEMORY_MB, self.series)
        assert machine is not None
        return {
            "mem_mb": _DRIVER_MEMORY_MB,
            "runtime": self.plain.max_runtime,
            "nodes": 1,
            "cpus_per_task": 1,
            "gcp_region": self.region,
            "gcp_zones": " ".join(self._zones(self.plain, "a driver")) or None,
            "gcp_machine_type": machine.name,
            "gcp_provisioning": "STANDARD",
        }

    def defaults(self) -> Mapping[str, Any]:
        found = {
            "gcp_region": self.region,
            "gcp_zones": " ".join(self._zones(self.plain, "a hand-written rule")),
            "gcp_provisioning": self.plain.provisioning,
            "runtime": self.plain.runtime,
        }
        return {name: value for name, value in found.items() if value}

    def describe(self, resources: Mapping[str, Any]) -> str:
        return describe(resources)

    def price(self, resources: Mapping[str, Any]) -> Price:
        return hourly_price(resources, price_tables(), self.offers_for(resources))

    def check(self, request: JobRequest) -> None:
        from marin_rules.clusters.gcp.definition import check_request  # That module imports sites.

        check_request(request, self)

    def _machine(self, request: MachineRequest, step: str, memory_mb: int) -> tuple[MachineType, Supply]:
        found = self._try_machine(request, memory_mb)
        if found is not None:
            return found
        offered = self._offered(request) if request.gpus else []
        if request.gpus and not offered:
            wanted = " or ".join(request.gpu_variants)
            asked = "GPUs" if wanted == ANY_GPU else f"GPUs of type {wanted}"
            raise SettingsError(f"step {step!r} asks for {asked}; {self._offer()}")
        largest = machine_types.largest(offered[0] if offered else None, self.series)
        what = f"{largest.cpus} cores and {memory_text(largest.memory_mb)}"
        raise SettingsError(
            f"step {step!r} asks for {request}, but the largest such machine of Compute Engine, {largest.name}, has"
            f" {f'{largest.gpus} GPUs, ' if largest.gpus else ''}{what}. Ask for less."
        )

    def _try_machine(self, request: MachineRequest, memory_mb: int) -> tuple[MachineType, Supply] | None:
        if not request.gpus:
            plain = machine_types.plain_machine(request.cpu, memory_mb, self.series)
            return None if plain is None else (plain, self.plain)
        for name in self._offered(request):
            machine = machine_types.gpu_machine(name, request.gpus, request.cpu, memory_mb)
            if machine is not None:
                return machine, self.gpus[name]
        return None

    def _offered(self, request: MachineRequest) -> list[str]:
        """The acceptable GPUs of the file, the preferred one first. A name without a size accepts any size."""
        found: dict[str, None] = {}
        for variant in request.gpu_variants:
            if variant == ANY_GPU:
                found |= dict.fromkeys(self.gpus)
                continue
            found |= dict.fromkeys(name for name in machine_types.gpu_names(variant) if name in self.gpus)
        return list(found)

    def _zones(self, supply: Supply, what: str) -> tuple[str, ...]:
        """Of the zones that the file names, those in the region of the job; `what` would run there."""
        here = tuple(zone for zone in supply.zones if zone.startswith(f"{self.region}-"))
        if supply.zones and not here:
            raise SettingsError(
                f"{what} would run in {self.region}, and the file of cluster {self.name} names only the zones"
                f" {', '.join(supply.zones)} for its machines: add zones of {self.region}, or take the region out"
            )
        return here

    def _offer(self) -> str:
        gpus = ", ".join(self.gpus)
        return (
            f"cluster {self.name} has {f'GPUs {gpus}' if gpus else 'no GPUs'} and {tpus_in_words(self.tpus)}. Change"
            " the step's resources, or gcp.gpus and gcp.tpus of the cluster's file in config/clusters."
        )


def read_site(name: str) -> GcpSite | None:
    """The project of this cluster; None if its file does not mention Google Cloud."""
    path = find_cluster_file(name)
    block = {key: value for key, value in read_block(path, "gcp").items() if value is not None}
    if not block:
        return None
    for key in ("project", "regions"):
        if key not in block:
            raise SettingsError(f"cluster file {path}: gcp lacks the key {key!r}, which every project needs")
    regions = tuple(block["regions"])
    plain = _supply(block, Supply(), path, regions)
    series = block.get("machine_series")
    if series is not None and series not in machine_types.SERIES:
        raise SettingsError(
            f"cluster file {path}: gcp.machine_series: {series!r} is not known; write one of"
            f" {', '.join(machine_types.SERIES)}"
        )
    tpus = read_tpus(block.get("tpus") or {}, plain.runtime, plain.max_runtime, path, regions)
    for generation, tpu in tpus.items():
        _check_minutes(tpu.runtime, tpu.max_runtime, f"{path}: gcp.tpus.{generation}")
    plain_keys = ("project", "network", "subnetwork", "external_address", "service_account", "image", "boot_image")
    return GcpSite(
        name=name,
        regions=regions,
        plain=plain,
        # Zones and reservations belong to other machines; the rest applies to all jobs.
        gpus=_gpus(block.get("gpus") or {}, replace(plain, zones=(), reservation=None), path, regions),
        series=CPU_SERIES if series is None else (series,),
        tpus=tpus,
        secrets=dict(block.get("secrets") or {}),
        labels=dict(block.get("labels") or {}),
        **{key: block[key] for key in plain_keys if key in block},
    )


def _gpus(
    given: Mapping[str, Mapping[str, Any] | None], base: Supply, path: Path, regions: tuple[str, ...]
) -> dict[str, Supply]:
    found: dict[str, Supply] = {}
    for variant, entry in given.items():
        names = machine_types.gpu_names(variant)
        if not names:
            raise SettingsError(
                f"cluster file {path}: gcp.gpus: {variant!r} is not a GPU of Compute Engine that is known here; write"
                f" one of {', '.join(machine_types.GPU_NAMES)}"
            )
        found |= {name: _supply(entry or {}, base, path, regions, f"gcp.gpus.{variant}") for name in names}
    return found


_READ: Mapping[str, Callable[[Any], Any]] = {
    "zones": tuple,
    "spot": bool,
    "provisioning": str,
    "reservation": str,
    "runtime": parse_minutes,
    "max_runtime": parse_minutes,
    "tasks_at_once": int,
}
"""How the value of each key of a supply is converted."""


def _supply(given: Mapping[str, Any], base: Supply, path: Path, regions: tuple[str, ...], key: str = "gcp") -> Supply:
    """What is given under this key, and for the rest what applies to all."""
    supply = replace(base, **{key: read(given[key]) for key, read in _READ.items() if given.get(key) is not None})
    outside = [zone for zone in supply.zones if zone.rpartition("-")[0] not in regions]
    if outside:
        raise SettingsError(
            f"cluster file {path}: the zones {', '.join(outside)} are in none of gcp.regions, {', '.join(regions)}"
        )
    _check_minutes(supply.runtime, supply.max_runtime, f"{path}: {key}")
    return supply


def _check_minutes(runtime: int | None, max_runtime: int, where: str) -> None:
    for key, minutes in (("runtime", runtime or 0), ("max_runtime", max_runtime)):
        if minutes > LONGEST_MINUTES:
            raise SettingsError(f"cluster file {where}.{key}: Batch ends every job after 14 days; write less")


def _region_of(zone: str, step: str) -> str:
    try:
        return region_of_zone(zone)
    except ValueError as error:
        raise SettingsError(f"step {step!r}: {error}") from error
