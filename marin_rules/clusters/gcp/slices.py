"""TPU slices as queued resources of Cloud TPU: creating, inspecting, listing and deleting them.

A slice is one queued resource: one node, or several of the same kind (multislice). The caller chooses its name, so that
a creation whose answer was lost finds what it created. Queued resources have no labels, but their nodes do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any

from marin_rules.clusters.gcp import names
from marin_rules.clusters.gcp.calls import Calls, ExistsError, NotFoundError, open_client
from marin_rules.clusters.gcp.offers import Offer
from marin_rules.clusters.gcp.slice_states import SliceWord, judge_slice
from marin_rules.clusters.protocol import BusyError, JobTag

EMULATOR_VARIABLE = "TPU_EMULATOR_HOST"
"""Where Cloud TPU is emulated, as `host:port`."""

_SCRIPT = "startup-script"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_PAGE = 500


@dataclass(frozen=True)
class SliceRequest:
    """A slice that somebody wants."""

    id: str
    offer: Offer
    count: int
    """Nodes of this kind that make up the whole."""

    script: str
    """What each host runs at every boot."""

    labels: Mapping[str, str] = field(default_factory=dict)
    network: str | None = None
    subnetwork: str | None = None
    external_address: bool = True
    service_account: str | None = None

    @property
    def digest(self) -> str:
        """Identifies slices that are provisioned alike and run the same. A label of their nodes."""
        # How long a worker waits for it is not a property of the slice; labels are for people, and for lists.
        fields = asdict(replace(self, offer=replace(self.offer, wait_seconds=0.0), labels={}))
        return names.digest(json.dumps(fields, sort_keys=True))


@dataclass(frozen=True)
class FoundSlice:
    """An existing slice, in any state."""

    name: str
    """`projects/P/locations/Z/queuedResources/ID`."""

    state: str
    labels: Mapping[str, str]

    @property
    def id(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def zone(self) -> str:
        return self.name.split("/")[3]

    @property
    def tag(self) -> JobTag | None:
        """The tag of the job whose worker created it."""
        return names.tag_of(self.labels)

    def is_what(self, request: SliceRequest) -> bool:
        """Whether it was created for this very request."""
        return self.labels.get(names.REQUEST) == request.digest


def open_tpu_client() -> Any:
    """Google's client for Cloud TPU, over gRPC."""

    def make() -> Any:
        from google.cloud import tpu_v2

        address = os.environ.get(EMULATOR_VARIABLE)
        if not address:
            return tpu_v2.TpuClient()
        import grpc
        from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

        return tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=grpc.insecure_channel(address)))

    return open_client(make)


class Slices:
    """The slices of a project."""

    def __init__(self, project: str, client: Any = None, calls: Calls | None = None) -> None:
        self._project = project
        self._client = client or open_tpu_client()
        self._call = calls or Calls()

    def create(self, request: SliceRequest) -> bool:
        """Request a slice; False if there is one of that name already."""
        from google.cloud import tpu_v2

        creation = tpu_v2.CreateQueuedResourceRequest(
            parent=self._parent(request.offer.zone),
            queued_resource_id=request.id,
            queued_resource=self._resource(request),
            request_id=names.request_id(request.id),
        )
        try:
            self._call(f"create TPU slice {request.id}", self._client.create_queued_resource, creation)
        except ExistsError:
            return False
        return True

    def look(self, zone: str, slice_id: str) -> SliceWord:
        """The state of a slice."""
        from google.cloud import tpu_v2

        name = f"{self._parent(zone)}/queuedResources/{slice_id}"
        get = tpu_v2.GetQueuedResourceRequest(name=name)
        try:
            found = self._call(f"look at TPU slice {slice_id}", self._client.get_queued_resource, get)
        except NotFoundError:
            return judge_slice(None)
        state = found.state.state.name
        error = found.state.failed_data.error.message if state == "FAILED" else ""
        word = judge_slice(state, error)
        if state != "ACTIVE":
            return word
        request = tpu_v2.ListNodesRequest(parent=self._parent(zone), page_size=_PAGE)
        pages = self._call.pages(f"look at the nodes of TPU slice {slice_id}", self._client.list_nodes, request)
        all_nodes = [node for page in pages for node in page.nodes]
        # By the id alone: there, Google may write the project's number in place of its name.
        nodes = [node.state.name for node in all_nodes if node.queued_resource.rpartition("/")[2] == slice_id]
        return judge_slice(state, error, nodes)

    def delete(self, zone: str, slice_id: str) -> None:
        """Delete a slice, with its nodes; one that is gone is fine."""
        from google.cloud import tpu_v2

        name = f"{self._parent(zone)}/queuedResources/{slice_id}"
        request = tpu_v2.DeleteQueuedResourceRequest(name=name, force=True)
        try:
            self._call(f"delete TPU slice {slice_id}", self._client.delete_queued_resource, request)
        except NotFoundError:
            return

    def find(self, labels: Mapping[str, str], zones: Sequence[str] = ()) -> list[FoundSlice]:
        """All slices whose nodes have these labels, in all zones and states.

        `BusyError` if one of `zones` does not answer: it may have some, about which nothing is then known.
        """
        from google.cloud import tpu_v2

        request = tpu_v2.ListQueuedResourcesRequest(parent=self._parent("-"), page_size=_PAGE)
        found = []
        for page in self._call.pages("list TPU slices", self._client.list_queued_resources, request):
            silent = [zone for zone in zones if any(place.rpartition("/")[2] == zone for place in page.unreachable)]
            if silent:
                raise BusyError(f"could not list TPU slices: Cloud TPU does not answer for {', '.join(silent)}")
            for resource in page.queued_resources:
                # All nodes of a slice have the same.
                given = dict(resource.tpu.node_spec[0].node.labels) if resource.tpu.node_spec else {}
                if labels.items() <= given.items():
                    found.append(FoundSlice(resource.name, resource.state.state.name, given))
        return found

    def close(self) -> None:
        self._client.transport.close()

    def _parent(self, zone: str) -> str:
        return f"projects/{self._project}/locations/{zone}"

    def _resource(self, request: SliceRequest) -> Any:
        from google.cloud import tpu_v2

        offer = request.offer
        node = tpu_v2.Node(
            runtime_version=offer.runtime_version,
            network_config=tpu_v2.NetworkConfig(
                network=request.network or "",
                subnetwork=request.subnetwork or "",
                enable_external_ips=request.external_address,
            ),
            metadata={_SCRIPT: request.script},
            labels={**request.labels, names.REQUEST: request.digest},
        )
        if offer.topology is None:
            node.accelerator_type = offer.accelerator
        else:
            node.accelerator_config = tpu_v2.AcceleratorConfig(
                type_=_generation(offer.accelerator), topology=offer.topology
            )
        if request.service_account is not None:
            node.service_account = tpu_v2.ServiceAccount(email=request.service_account, scope=[_SCOPE])
        spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=self._parent(offer.zone), node=node)
        if request.count > 1:
            spec.multislice_params = tpu_v2.QueuedResource.Tpu.NodeSpec.MultisliceParams(
                node_count=request.count, node_id_prefix=request.id
            )
        else:
            spec.node_id = request.id
        resource = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
        if offer.reservation is not None:
            is_whole_name = "/" in offer.reservation
            place = "" if is_whole_name else f"{self._parent(offer.zone)}/reservations/"
            resource.reservation_name = f"{place}{offer.reservation}"
            resource.guaranteed = tpu_v2.QueuedResource.Guaranteed()
        elif offer.spot:
            resource.spot = tpu_v2.QueuedResource.Spot()
        # A slice that nobody waits for any more must not arrive later, at somebody's expense.
        resource.queueing_policy = tpu_v2.QueuedResource.QueueingPolicy(
            valid_until_duration=timedelta(seconds=max(600.0, 2 * offer.wait_seconds))
        )
        return resource


def _generation(accelerator: str) -> str:
    """The API's name for the generation of a type, if its layout is given."""
    generation = accelerator.rpartition("-")[0]
    return "V5LITE_POD" if generation == "v5litepod" else generation.upper()
