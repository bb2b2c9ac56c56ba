"""How TPU slices of one generation are provisioned in a project: the `tpus:` block of a cluster's file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_rules.clusters.gcp.offers import Offer
from marin_rules.clusters.gcp.resources import LONGEST_MINUTES
from marin_rules.errors import SettingsError
from marin_rules.geography import region_of_zone
from marin_rules.units import parse_minutes

RUNTIME_VERSIONS = {
    "v4": "tpu-ubuntu2204-base",
    "v5litepod": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
"""What Google's pages name for each generation. A cluster's file may name another one."""

_ALIASES = {"v5e": "v5litepod"}
"""Google's pages say v5e, its API v5litepod."""


@dataclass(frozen=True)
class TpuSupply:
    """How slices of one generation are provisioned."""

    zones: tuple[str, ...]
    """In the order in which they are tried."""

    runtime_version: str
    spot: bool = True
    """Whether preemptible steps get Spot slices."""

    on_demand: bool = False
    """Whether such steps get a slice on demand if none is available as Spot."""

    reservation: str | None = None
    worker_region: str | None = None
    """Where the workers of such steps have their small machine, if Batch is not offered in the region of the zone."""

    wait_minutes: int = 30
    """How long to wait for a slice before trying the next zone or type."""

    runtime: int | None = None
    """Time limit of a job in minutes, at its first attempt."""

    max_runtime: int = LONGEST_MINUTES

    def offers(self, kind: str, preemptible: bool, topology: str | None) -> Iterator[Offer]:
        """Slices of a type, in the order in which they are tried: reserved ones, Spot, on demand; each in all zones.

        A reservation is also for steps that are not preemptible: these get no Spot, and without a reservation run on
        demand.
        """
        ways: list[dict[str, Any]] = []
        if self.reservation is not None:
            ways.append({"reservation": self.reservation})
        is_spot = preemptible and self.spot
        if is_spot:
            ways.append({"spot": True})
        if (not is_spot and self.reservation is None) or (is_spot and self.on_demand):
            ways.append({})
        for way in ways:
            for zone in self.zones:
                yield Offer(
                    kind, zone, self.runtime_version, topology=topology, wait_seconds=self.wait_minutes * 60.0, **way
                )


def read_tpus(
    given: Mapping[str, Mapping[str, Any]], runtime: int | None, max_runtime: int, path: Path, regions: tuple[str, ...]
) -> dict[str, TpuSupply]:
    """The block of a cluster's file; times that it does not name are those of all jobs."""
    found: dict[str, TpuSupply] = {}
    for name, entry in given.items():
        generation = _ALIASES.get(name, name)
        if generation not in RUNTIME_VERSIONS:
            raise SettingsError(
                f"cluster file {path}: gcp.tpus: {name!r} is not a generation of TPUs that is known here; write one of"
                f" {', '.join(RUNTIME_VERSIONS)}"
            )
        if not (entry or {}).get("zones"):
            raise SettingsError(f"cluster file {path}: gcp.tpus.{name} lacks the key 'zones': TPUs are in few of them")
        outside = [zone for zone in entry["zones"] if region_of_zone(zone) not in regions]
        if outside:
            raise SettingsError(
                f"cluster file {path}: gcp.tpus.{name}: the zones {', '.join(outside)} are in none of gcp.regions,"
                f" {', '.join(regions)}"
            )
        found[generation] = TpuSupply(
            zones=tuple(entry["zones"]),
            runtime_version=entry.get("runtime_version") or RUNTIME_VERSIONS[generation],
            reservation=entry.get("reservation"),
            worker_region=entry.get("worker_region"),
            wait_minutes=parse_minutes(entry.get("wait") or "30m"),
            runtime=parse_minutes(entry["runtime"]) if entry.get("runtime") else runtime,
            max_runtime=parse_minutes(entry["max_runtime"]) if entry.get("max_runtime") else max_runtime,
            **{key: entry[key] for key in ("spot", "on_demand") if entry.get(key) is not None},
        )
    return found


def tpus_in_words(tpus: Mapping[str, TpuSupply]) -> str:
    """What there is, for messages."""
    if not tpus:
        return "no TPUs"
    return "TPUs " + ", ".join(f"{name} in {' and '.join(supply.zones)}" for name, supply in tpus.items())
