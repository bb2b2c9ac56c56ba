"""What the steps of an experiment need from a project: from its quotas, and from the TPUs that zones offer. Pure.

Steps that run at the same time add up, but it is unknown which will: so each is considered alone. A step that alone
exceeds a quota can never run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from marin_rules.clusters.gcp.machine_types import machine_type
from marin_rules.clusters.gcp.readiness import cpu_quota, gpu_quota
from marin_rules.clusters.gcp.site import GcpSite
from marin_rules.clusters.protocol import WantedMachines
from marin_rules.errors import SettingsError


@dataclass(frozen=True)
class Need:
    """What a step needs from a quota of Compute Engine, for all of its machines together."""

    step: str
    region: str
    quota: str | None
    """None if regions do not list it."""

    amount: int
    spot: bool


@dataclass
class Demand:
    """Of all steps together."""

    needs: list[Need] = field(default_factory=list)
    """For each quota the step that needs the most of it."""

    tpus: list[tuple[str, str]] = field(default_factory=list)
    """Zones, and the accelerator types that are wanted there."""

    refusals: dict[str, str] = field(default_factory=dict)
    """By step: why the project has no machines for it."""


def demand_of(wanted: Iterable[WantedMachines], site: GcpSite) -> Demand:
    """What these steps ask for."""
    found = Demand()
    most: dict[tuple[str, str | None, bool], Need] = {}
    for step in wanted:
        try:
            resources = site.resources(step.request, step.step, regions=step.regions)
        except SettingsError as error:
            found.refusals[step.step] = str(error)
            continue
        if resources.get("gcp_tpu"):
            found.tpus += [(offer.zone, offer.accelerator) for offer in site.offers_for(resources)]
            continue
        machine = machine_type(resources["gcp_machine_type"])
        assert machine is not None, "a site names only what is in the table"
        gpu, _, count = str(resources.get("gcp_gpu") or "").partition(":")
        quota = gpu_quota(gpu) if gpu else cpu_quota(machine.series)
        each = int(count) if gpu else machine.cpus
        spot = resources["gcp_provisioning"] == "SPOT"
        need = Need(step.step, resources["gcp_region"], quota, each * step.request.replicas, spot)
        key = (need.region, quota, spot)
        if key not in most or most[key].amount < need.amount:
            most[key] = need
    found.needs = list(most.values())
    found.tpus = list(dict.fromkeys(found.tpus))
    return found
