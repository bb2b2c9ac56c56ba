"""Cloud TPU on loopback, by Google's own client: queued resources from their creation to their end."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.cloud.tpu_v2 import QueuedResourceState, TpuClient

from support.emulators.tpu.clients import tpu_client
from support.emulators.tpu.emulator import TpuEmulator
from support.emulators.waiting import wait

PARENT = "projects/emulated/locations/us-central2-b"
ASK = 'curl --silent -H "Metadata-Flavor: Google" http://$GCE_METADATA_HOST/computeMetadata/v1/instance/attributes'
State = QueuedResourceState.State


@pytest.fixture
def client(tpu: TpuEmulator) -> TpuClient:
    return tpu_client(tpu)


def slice_of(script: str, kind: str = "v4-16", **fields: Any) -> tpu_v2.QueuedResource:
    node = tpu_v2.Node(
        accelerator_type=kind, runtime_version="tpu-ubuntu2204-base", metadata={"startup-script": script, "X": "1"}
    )
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=PARENT, node_id="node", node=node)
    return tpu_v2.QueuedResource(
        tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]), **{"spot": tpu_v2.QueuedResource.Spot(), **fields}
    )


def create(client: TpuClient, resource: tpu_v2.QueuedResource, name: str = "slice", **fields: Any) -> Any:
    request = tpu_v2.CreateQueuedResourceRequest(
        parent=PARENT, queued_resource_id=name, queued_resource=resource, **fields
    )
    return client.create_queued_resource(request, timeout=10)


def state_of(client: TpuClient, name: str = "slice") -> State:
    return client.get_queued_resource(name=f"{PARENT}/queuedResources/{name}", timeout=10).state.state


def active(client: TpuClient, name: str = "slice") -> None:
    wait(lambda: state_of(client, name), lambda state: state == State.ACTIVE)


def test_every_host_of_a_slice_runs_the_startup_script_and_learns_who_it_is(
    tpu: TpuEmulator, client: TpuClient
) -> None:
    create(client, slice_of(f"{ASK}/agent-worker-number; echo; {ASK}/X; echo", "v4-128"))
    active(client)
    lines = wait(lambda: tpu.lines("node"), lambda lines: all(len(host) == 2 for host in lines))
    assert lines == [[str(host), "1"] for host in range(16)]
    node = client.get_node(name=f"{PARENT}/nodes/node", timeout=10)
    assert node.state == tpu_v2.Node.State.READY
    # With the project's number, as in Google's tutorials.
    assert node.queued_resource == "projects/123456789012/" + PARENT.split("/", 2)[2] + "/queuedResources/slice"
    assert len({endpoint.ip_address for endpoint in node.network_endpoints}) == 16


def test_hosts_know_all_addresses_and_have_no_other_word_of_themselves(tpu: TpuEmulator, client: TpuClient) -> None:
    create(client, slice_of(f"{ASK}/worker-network-endpoints; echo; echo ${{TPU_WORKER_ID:-unset}}"))
    lines = wait(lambda: tpu.lines("node") if state_of(client) == State.ACTIVE else [], lambda hosts: bool(hosts))
    lines = wait(lambda: tpu.lines("node"), lambda hosts: all(len(host) == 2 for host in hosts))
    node = client.get_node(name=f"{PARENT}/nodes/node", timeout=10)
    addresses = ",".join(f"unknown:unknown:{endpoint.ip_address}" for endpoint in node.network_endpoints)
    assert lines == [[addresses, "unset"]] * 2


@pytest.mark.parametrize(("kind", "hosts"), [("v4-8", 1), ("v4-16", 2), ("v4-64", 8)])
def test_a_slice_has_as_many_hosts_as_google_gives_it(
    tpu: TpuEmulator, client: TpuClient, kind: str, hosts: int
) -> None:
    create(client, slice_of("true", kind))
    active(client)
    assert len(tpu.lines("node")) == hosts


def test_it_waits_for_resources_and_its_operation_is_done_when_it_has_them(tpu: TpuEmulator, client: TpuClient) -> None:
    tpu.hold("WAITING_FOR_RESOURCES")
    operation = create(client, slice_of("true"))
    wait(lambda: state_of(client), lambda state: state == State.WAITING_FOR_RESOURCES)
    assert not operation.done()
    with pytest.raises(TypeError):
        _ = operation.metadata  # Of a type that the client does not know.
    tpu.hold()
    assert operation.result(timeout=10).name == f"{PARENT}/queuedResources/slice"


def test_a_preempted_slice_is_suspended_and_its_processes_are_gone(tpu: TpuEmulator, client: TpuClient) -> None:
    create(client, slice_of("setsid sleep 60 & sleep 60"))
    wait(tpu.processes, lambda pids: len(pids) == 6)
    tpu.preempt("slice")
    assert (state_of(client), tpu.processes()) == (State.SUSPENDED, [])
    assert client.get_node(name=f"{PARENT}/nodes/node", timeout=10).state == tpu_v2.Node.State.PREEMPTED
    create(client, slice_of("true", spot=None), "bought")
    with pytest.raises(ValueError, match="not Spot"):
        tpu.preempt("bought")


def test_a_stock_out_is_an_error_of_the_operation_too(tpu: TpuEmulator, client: TpuClient) -> None:
    tpu.hold("WAITING_FOR_RESOURCES")
    operation = create(client, slice_of("true"))
    tpu.fail("slice", 8, "no more capacity")
    found = client.get_queued_resource(name=f"{PARENT}/queuedResources/slice", timeout=10)
    assert (found.state.state, found.state.failed_data.error.code) == (State.FAILED, 8)
    with pytest.raises(exceptions.ResourceExhausted, match="no more capacity"):
        operation.result(timeout=10)


def test_one_that_waits_too_long_fails(tpu: TpuEmulator, client: TpuClient) -> None:
    tpu.hold("PROVISIONING")
    policy = tpu_v2.QueuedResource.QueueingPolicy(valid_until_duration=timedelta(seconds=0.1))
    create(client, slice_of("true", queueing_policy=policy))
    wait(lambda: state_of(client), lambda state: state == State.FAILED)


def test_a_startup_script_runs_again_at_every_boot(tpu: TpuEmulator, client: TpuClient) -> None:
    create(client, slice_of("echo boot >> boots; wc -l < boots"))
    active(client)
    wait(lambda: tpu.lines("node"), lambda hosts: hosts == [["1"], ["1"]])
    tpu.reboot("node", 1)
    wait(lambda: tpu.lines("node"), lambda hosts: hosts == [["1"], ["1", "2"]])


def test_one_host_can_be_lost(tpu: TpuEmulator, client: TpuClient) -> None:
    create(client, slice_of("exec sleep 60"))
    wait(tpu.processes, lambda pids: len(pids) == 2)
    tpu.shut_down("node", 0)
    assert len(tpu.processes()) == 1
    assert client.get_node(name=f"{PARENT}/nodes/node", timeout=10).state == tpu_v2.Node.State.REPAIRING


def test_deleting_needs_force_while_there_are_nodes(tpu: TpuEmulator, client: TpuClient) -> None:
    create(client, slice_of("sleep 60"))
    active(client)
    name = f"{PARENT}/queuedResources/slice"
    with pytest.raises(exceptions.FailedPrecondition, match="force"):
        client.delete_queued_resource(name=name, timeout=10)
    client.delete_queued_resource(tpu_v2.DeleteQueuedResourceRequest(name=name, force=True), timeout=10).result(10)
    assert tpu.processes() == []
    for gone in (client.get_queued_resource, client.delete_queued_resource):
        with pytest.raises(exceptions.NotFound):
            gone(name=name, timeout=10)
    with pytest.raises(exceptions.NotFound):
        client.get_node(name=f"{PARENT}/nodes/node", timeout=10)


def test_a_suspended_one_counts_until_it_is_deleted(tpu: TpuEmulator, client: TpuClient) -> None:
    tpu.set_quota(1)
    create(client, slice_of("true"))
    active(client)
    tpu.preempt("slice")
    with pytest.raises(exceptions.ResourceExhausted):
        create(client, slice_of("true"), "other")
    client.delete_queued_resource(name=f"{PARENT}/queuedResources/slice", timeout=10).result(10)
    create(client, slice_of("true"), "other")


def test_a_request_id_is_good_for_one_slice(tpu: TpuEmulator, client: TpuClient) -> None:
    identity = str(uuid.uuid4())
    tpu.inject("lost", methods=["CreateQueuedResource"], times=1)
    with pytest.raises(exceptions.ServiceUnavailable):
        create(client, slice_of("true"), request_id=identity)
    create(client, slice_of("true"), request_id=identity)
    with pytest.raises(exceptions.AlreadyExists):
        create(client, slice_of("true"), request_id=str(uuid.uuid4()))
    assert len(list(client.list_queued_resources(parent="projects/emulated/locations/-", timeout=10))) == 1


def test_multislice_has_a_node_for_each_slice(tpu: TpuEmulator, client: TpuClient) -> None:
    resource = slice_of("true")
    params = tpu_v2.QueuedResource.Tpu.NodeSpec.MultisliceParams(node_count=2)
    resource.tpu.node_spec[0].node_id, resource.tpu.node_spec[0].multislice_params = "", params
    create(client, resource)
    active(client)
    nodes = client.list_nodes(parent=PARENT, timeout=10)
    assert [node.name.rpartition("/")[2] for node in nodes] == ["slice-0", "slice-1"]
    assert list(client.list_nodes(parent="projects/other/locations/-", timeout=10)) == []


def _in_another_zone(resource: tpu_v2.QueuedResource) -> None:
    resource.tpu.node_spec[0].parent = "projects/emulated/locations/us-east5-b"


def _of_another_generation(resource: tpu_v2.QueuedResource) -> None:
    resource.tpu.node_spec[0].node.accelerator_type = "v6e-8"


def _without_runtime(resource: tpu_v2.QueuedResource) -> None:
    resource.tpu.node_spec[0].node.runtime_version = ""


def _with_state(resource: tpu_v2.QueuedResource) -> None:
    resource.state.state = State.ACTIVE


def _of_one_slice(resource: tpu_v2.QueuedResource) -> None:
    resource.tpu.node_spec[0].node_id = ""
    resource.tpu.node_spec[0].multislice_params.node_count = 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_in_another_zone, "us-east5-b"),
        (_of_another_generation, "v6e-8"),
        (_without_runtime, "runtime_version"),
        (_with_state, "QueuedResource.state: output only"),
        (_of_one_slice, "node_count"),
    ],
)
def test_what_cloud_tpu_would_refuse_is_refused(
    tpu: TpuEmulator, client: TpuClient, change: Callable[[tpu_v2.QueuedResource], None], words: str
) -> None:
    resource = slice_of("true")
    change(resource)
    with pytest.raises(exceptions.InvalidArgument, match=words):
        create(client, resource)
    assert (words in tpu.take_objections()) == ("output only" in words)
