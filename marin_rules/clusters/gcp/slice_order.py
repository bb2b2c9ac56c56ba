"""Which TPU slices the worker of a step should get, as its job is told; and how it carries that out.

The job's definition carries this as JSON in a variable. It holds no secrets, only their locations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from marin_rules.clusters.gcp import names
from marin_rules.clusters.gcp.job_variables import (
    CPUS_VARIABLE,
    DEADLINE_VARIABLE,
    JOB_VARIABLE,
    MEETING_VARIABLE,
    NODE_VARIABLE,
    SCRIPT_VARIABLE,
    SLICE_VARIABLE,
    SLICES_VARIABLE,
)
from marin_rules.clusters.gcp.meeting import Meeting
from marin_rules.clusters.gcp.offers import Offer
from marin_rules.clusters.gcp.slice_machines import SlicePlan
from marin_rules.clusters.gcp.slices import SliceRequest
from marin_rules.clusters.gcp.startup_script import HostPlace, startup_script

_OF_THE_WORKER = frozenset(
    (CPUS_VARIABLE, DEADLINE_VARIABLE, JOB_VARIABLE, NODE_VARIABLE, SCRIPT_VARIABLE, SLICES_VARIABLE)
)
"""Variables of the job that are not for hosts: they have another machine, or would make them workers."""


@dataclass(frozen=True)
class SliceOrder:
    """The slices of one step."""

    step: str
    identity: str
    project: str
    offers: Sequence[Offer]
    slices: int
    hosts: int
    """Of one slice."""

    place: str
    """The folder under which worker and hosts meet."""

    variables: Sequence[str] = ()
    """Names of the job's variables; hosts get the same."""

    secrets: Mapping[str, str] = field(default_factory=dict)
    """Names of variables, and where Secret Manager has their values."""

    labels: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    network: str | None = None
    subnetwork: str | None = None
    external_address: bool = True
    service_account: str | None = None

    def to_json(self) -> str:
        fields = {**asdict(replace(self, offers=())), "offers": [offer.to_fields() for offer in self.offers]}
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "offers": tuple(map(Offer.from_fields, fields["offers"]))})

    def check(self, variables: Mapping[str, str], slice_id: str) -> None:
        """`RefusedError` if hosts could not be told what the job is."""
        for zone in dict.fromkeys(offer.zone for offer in self.offers):
            self._script(variables, Meeting(f"{self.own_place}/{slice_id}"), slice_id, zone)

    def plan(self, variables: Mapping[str, str]) -> SlicePlan:
        """How the worker carries it out, given all variables of its job."""
        request = SliceRequest(
            id="",
            offer=self.offers[0],
            count=self.slices,
            script="",
            labels=self.labels,
            network=self.network,
            subnetwork=self.subnetwork,
            external_address=self.external_address,
            service_account=self.service_account,
        )

        def script_for(meeting: Meeting, slice_id: str, zone: str) -> str:
            return self._script(variables, meeting, slice_id, zone)

        return SlicePlan(
            step=self.step,
            identity=self.identity,
            job=variables[JOB_VARIABLE],
            offers=self.offers,
            slices=self.slices,
            hosts=self.hosts,
            place=self.own_place,
            zone_memory=f"{self.place}/zones.json",
            request=request,
            script_for=script_for,
        )

    @property
    def own_place(self) -> str:
        """The folder of this step, below that of all steps of its run."""
        return f"{self.place}/{names.digest(self.identity)}"

    def _script(self, variables: Mapping[str, str], meeting: Meeting, slice_id: str, zone: str) -> str:
        kept = {name: variables[name] for name in self.variables if name in variables and name not in _OF_THE_WORKER}
        about = {
            "id": slice_id,
            "project": self.project,
            "zone": zone,
            "slices": self.slices,
            "hosts": self.hosts,
            "secrets": dict(self.secrets),
        }
        own = {
            JOB_VARIABLE: slice_id,
            MEETING_VARIABLE: meeting.folder,
            SLICE_VARIABLE: json.dumps(about, sort_keys=True),
        }
        place = HostPlace(self.project, zone, slice_id, meeting.boot_log)
        return startup_script({**kept, **own}, variables[SCRIPT_VARIABLE], self.image, place)
