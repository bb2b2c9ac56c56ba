"""The API of Cloud TPU: queued resources and their nodes."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
from google.cloud import tpu_v2
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from support.emulators.rpc.errors import RpcError, already_exists, failed_precondition, not_found
from support.emulators.rpc.operations import Operations
from support.emulators.rpc.server import page_of
from support.emulators.rpc.service import Method
from support.emulators.rpc.world import World
from support.emulators.tpu.refusals import accelerator_types, check, runtime_versions
from support.emulators.tpu.slice import Slice, State

_TPU = "google.cloud.tpu.v2.Tpu"
_LARGEST_PAGE = 1000
_SMALL_PAGE = 5
"""Of what a zone offers: so that no client gets by with the first page."""


class TpuService:
    """Cloud TPU behind the front."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._operations = Operations("google.cloud.common.OperationMetadata")
        self._slices: dict[str, Slice] = {}
        self._by_request: dict[str, Slice] = {}
        self._most: int | None = None
        self._silent: set[str] = set()
        self._world = self._new_world()
        operation = operations_pb2.Operation
        self.methods: Mapping[str, Method] = {
            f"{_TPU}/CreateQueuedResource": Method(self._create, tpu_v2.CreateQueuedResourceRequest, operation),
            f"{_TPU}/GetQueuedResource": Method(self._get, tpu_v2.GetQueuedResourceRequest, tpu_v2.QueuedResource),
            f"{_TPU}/ListQueuedResources": Method(
                self._list, tpu_v2.ListQueuedResourcesRequest, tpu_v2.ListQueuedResourcesResponse
            ),
            f"{_TPU}/DeleteQueuedResource": Method(self._delete, tpu_v2.DeleteQueuedResourceRequest, operation),
            f"{_TPU}/GetNode": Method(self._get_node, tpu_v2.GetNodeRequest, tpu_v2.Node),
            f"{_TPU}/ListNodes": Method(self._list_nodes, tpu_v2.ListNodesRequest, tpu_v2.ListNodesResponse),
            f"{_TPU}/ListAcceleratorTypes": Method(
                self._list_accelerator_types,
                tpu_v2.ListAcceleratorTypesRequest,
                tpu_v2.ListAcceleratorTypesResponse,
            ),
            f"{_TPU}/ListRuntimeVersions": Method(
                self._list_runtime_versions, tpu_v2.ListRuntimeVersionsRequest, tpu_v2.ListRuntimeVersionsResponse
            ),
            "google.longrunning.Operations/GetOperation": self._operations.method,
        }

    # --- for tests

    def reset(self) -> None:
        self.close()
        self._slices.clear()
        self._by_request.clear()
        self._operations.reset()
        self._most = None
        self._silent = set()
        self._world = self._new_world()

    def close(self) -> None:
        for found in list(self._slices.values()):
            found.close()

    def control(self, what: str, arguments: Mapping[str, Any]) -> Any:
        match what:
            case "hold":
                self._world.held = {State[name] for name in arguments["states"]}
                self._world.change()
            case "quota":
                self._most = arguments["most"]
            case "silence":
                self._silent = set(arguments["zones"])
            case "preempt":
                found = self._named(arguments["resource"])
                if not found.is_spot:
                    raise ValueError(f"{arguments['resource']} cannot be preempted: it is not Spot")
                found.suspend()
            case "fail":
                self._named(arguments["resource"]).fail(arguments["code"], arguments["message"])
            case "reboot" | "shut_down":
                found, node = self._with_node(arguments["node"])
                act = found.reboot if what == "reboot" else found.shut_down
                act(node, arguments["host"])
            case "lines":
                found, node = self._with_node(arguments["node"])
                return [host.lines for host in found.hosts[node]]
            case "processes":
                hosts = [host for found in self._slices.values() for hosts in found.hosts.values() for host in hosts]
                return [pid for host in hosts if host.machine is not None for pid in host.machine.processes()]
            case _:
                raise ValueError(f"no such control call: {what}")
        return None

    def _named(self, resource: str) -> Slice:
        for name, found in self._slices.items():
            if name.endswith(f"/queuedResources/{resource}"):
                return found
        raise ValueError(f"no queued resource {resource}")

    def _with_node(self, node: str) -> tuple[Slice, str]:
        for found in self._slices.values():
            for name in found.nodes:
                if name.endswith(f"/nodes/{node}"):
                    return found, name
        raise ValueError(f"no node {node}")

    def _new_world(self) -> World:
        return World(self._folder / uuid.uuid4().hex)

    # --- for clients

    def _create(self, request: Any) -> operations_pb2.Operation:
        name = f"{request.parent}/queuedResources/{request.queued_resource_id}"
        if request.request_id and request.request_id in self._by_request:
            return self._creation(request.parent, self._by_request[request.request_id])
        check(request)
        if name in self._slices:
            raise already_exists(name)
        if self._most is not None and len(self._slices) >= self._most:
            # Those that are suspended or have failed count, until somebody deletes them.
            raise RpcError(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota limit 'QueuedResourcesPerZone' has been exceeded."
            )
        message = tpu_v2.QueuedResource.deserialize(tpu_v2.QueuedResource.serialize(request.queued_resource))
        message.name = name
        message.create_time = datetime.now(UTC)
        found = self._slices[name] = Slice(message, self._world)
        if request.request_id:
            self._by_request[request.request_id] = found
        return self._creation(request.parent, found)

    def _creation(self, parent: str, found: Slice) -> operations_pb2.Operation:
        def result() -> Any:
            error = found.message.state.failed_data.error
            if found.state == State.FAILED:
                code = next(code for code in grpc.StatusCode if code.value[0] == error.code)
                return RpcError(code, error.message)
            return tpu_v2.QueuedResource.pb(found.message) if found.state == State.ACTIVE else None

        return self._operations.start(parent, result)

    def _get(self, request: Any) -> Any:
        return self._slice(request.name).message

    def _list(self, request: Any) -> Any:
        found = [found.message for name, found in self._slices.items() if _is_below(name, request.parent)]
        heard = [message for message in found if message.name.split("/")[3] not in self._silent]
        page, token = page_of(heard, request.page_size, request.page_token, most=_LARGEST_PAGE)
        project = request.parent.split("/")[1]
        unreachable = [f"projects/{project}/locations/{zone}" for zone in sorted(self._silent)]
        return tpu_v2.ListQueuedResourcesResponse(queued_resources=page, next_page_token=token, unreachable=unreachable)

    def _delete(self, request: Any) -> operations_pb2.Operation:
        found = self._slice(request.name)
        if found.state == State.ACTIVE and not request.force:
            raise failed_precondition(f"{request.name} has nodes: delete them first, or use force.")
        if found.state != State.DELETING:
            found.end(lambda: self._forget(request.name, found))
        parent = request.name.partition("/queuedResources/")[0]
        return self._operations.start(
            parent, lambda: None if self._slices.get(request.name) is found else empty_pb2.Empty()
        )

    def _forget(self, name: str, found: Slice) -> None:
        if self._slices.get(name) is found:
            del self._slices[name]

    def _get_node(self, request: Any) -> Any:
        for found in self._slices.values():
            if request.name in found.nodes:
                return found.nodes[request.name]
        raise not_found(request.name)

    def _list_nodes(self, request: Any) -> Any:
        nodes = [node for found in self._slices.values() for node in found.nodes.values()]
        below = [node for node in nodes if _is_below(node.name, request.parent)]
        page, token = page_of(below, request.page_size, request.page_token, most=_LARGEST_PAGE)
        return tpu_v2.ListNodesResponse(nodes=page, next_page_token=token)

    def _list_accelerator_types(self, request: Any) -> Any:
        types = [
            tpu_v2.AcceleratorType(name=f"{request.parent}/acceleratorTypes/{name}", type_=name)
            for name in accelerator_types(request.parent)
        ]
        page, token = page_of(types, request.page_size, request.page_token, most=_SMALL_PAGE)
        return tpu_v2.ListAcceleratorTypesResponse(accelerator_types=page, next_page_token=token)

    def _list_runtime_versions(self, request: Any) -> Any:
        versions = [
            tpu_v2.RuntimeVersion(name=f"{request.parent}/runtimeVersions/{version}", version=version)
            for version in runtime_versions(request.parent)
        ]
        page, token = page_of(versions, request.page_size, request.page_token, most=_SMALL_PAGE)
        return tpu_v2.ListRuntimeVersionsResponse(runtime_versions=page, next_page_token=token)

    def _slice(self, name: str) -> Slice:
        try:
            return self._slices[name]
        except KeyError:
            raise not_found(name) from None


def _is_below(name: str, parent: str) -> bool:
    """Whether a resource is in a location, or in any of a project's."""
    return name.startswith(f"{parent}/") or (parent.endswith("/-") and name.startswith(parent.removesuffix("-")))
