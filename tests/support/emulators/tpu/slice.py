"""One queued resource: its states, its nodes, and their hosts, which are machines on loopback addresses of their own.

Each host runs the startup script of its node's metadata at every boot. It finds out who it is from its metadata server,
as on a real TPU VM: no variable tells it, but for the address of that server.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from google.cloud import tpu_v2

from support.emulators.metadata_server import MetadataServer
from support.emulators.rpc.machine import Machine
from support.emulators.rpc.world import World
from support.emulators.tpu.refusals import host_count

State: Any = tpu_v2.QueuedResourceState.State
NodeState: Any = tpu_v2.Node.State

_addresses = itertools.count(1)

_IMAGE = Path(__file__).with_name("host_image")
_PROJECT_NUMBER = "123456789012"
"""Programs that hosts have, beside those of this machine."""


class Host:
    """One host of a node."""

    def __init__(self, folder: Path, zone: str, address: str) -> None:
        self.address = address
        self.lines: list[str] = []
        self.boots = 0
        self.machine: Machine | None = None
        self.metadata = MetadataServer(zone)
        self._folder = folder
        self._life: asyncio.Future[int] | None = None

    def boot(self, script: str) -> None:
        """Start it, or start it again: then with an empty memory, and the disk that it had."""
        self.shut_down()
        self.boots += 1
        disk = self._folder / "disk"
        disk.mkdir(parents=True, exist_ok=True)
        self.machine = Machine(self._folder / f"boot{self.boots}")
        file = self.machine.folder / "startup-script"
        file.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}")
        file.chmod(0o755)
        variables = {
            **self.metadata.environment,
            "PATH": f"{_IMAGE}{os.pathsep}{os.environ['PATH']}",
            "EMULATED_PYTHON": sys.executable,
        }
        self._life = asyncio.ensure_future(self.machine.run([str(file)], variables, self.lines.append, cwd=disk))

    def shut_down(self) -> None:
        if self._life is not None:
            self._life.cancel()
        if self.machine is not None:
            self.machine.take_away()
        self.machine = self._life = None

    def close(self) -> None:
        self.shut_down()
        self.metadata.close()


class Slice:
    """A queued resource with the nodes that it was given."""

    def __init__(self, message: Any, world: World) -> None:
        self.message = message
        self.nodes: dict[str, Any] = {}
        self.hosts: dict[str, list[Host]] = {}
        self._world = world
        self._set(State.CREATING)
        self._life = asyncio.ensure_future(self._live())

    @property
    def is_spot(self) -> bool:
        return "spot" in self.message  # An empty message, which is false.

    @property
    def state(self) -> Any:
        return self.message.state.state

    async def _live(self) -> None:
        for state in (State.ACCEPTED, State.WAITING_FOR_RESOURCES, State.PROVISIONING):
            await self._leave()
            self._set(state)
        policy = self.message.queueing_policy
        longest = policy.valid_until_duration.total_seconds() if policy.valid_until_duration else None
        try:
            async with asyncio.timeout(longest):
                await self._leave()
        except TimeoutError:
            self.fail(4, "The queued resource could not be provisioned before its valid_until time.")
            return
        self._provision()
        self._set(State.ACTIVE)

    async def _leave(self) -> None:
        while self.state in self._world.held:
            await self._world.changed.wait()

    def _provision(self) -> None:
        for spec in self.message.tpu.node_spec:
            for identity in _node_ids(spec, self.message.name):
                node = tpu_v2.Node.deserialize(tpu_v2.Node.serialize(spec.node))
                node.name = f"{spec.parent}/nodes/{identity}"
                self._start_node(node, spec.parent.rpartition("/")[2])

    def _start_node(self, node: Any, zone: str) -> None:
        number = next(_addresses)
        count = host_count(node)
        folder = self._world.folder / node.name.rpartition("/")[2]
        hosts = [
            Host(folder / f"host{host}-{number}", zone, f"127.1.{number % 250 + 1}.{host + 1}") for host in range(count)
        ]
        node.queued_resource = _with_project_number(self.message.name)
        node.network_endpoints = [tpu_v2.NetworkEndpoint(ip_address=host.address, port=8470) for host in hosts]
        node.state = NodeState.READY
        self.nodes[node.name], self.hosts[node.name] = node, hosts
        for index, host in enumerate(hosts):
            host.metadata.attributes = {
                **dict(node.metadata),
                "agent-worker-number": str(index),
                "worker-network-endpoints": ",".join(f"unknown:unknown:{other.address}" for other in hosts),
                "tpu-env": self._tpu_env(node, index, zone),
            }
            host.boot(node.metadata.get("startup-script", ""))

    def _tpu_env(self, node: Any, worker: int, zone: str) -> str:
        name = node.name.rpartition("/")[2]
        found = {"ACCELERATOR_TYPE": node.accelerator_type, "NODE_ID": name, "WORKER_ID": worker, "ZONE": zone}
        slices = self.message.tpu.node_spec[0].multislice_params.node_count
        if slices > 1:
            first = next(iter(self.hosts.values()))[0]
            found |= {"MEGASCALE_COORDINATOR_ADDRESS": f"{first.address}:8080", "MEGASCALE_NUM_SLICES": slices}
            found["MEGASCALE_SLICE_ID"] = name.rpartition("-")[2]
        return "".join(f"{key}: '{value}'\n" for key, value in found.items())

    # --- from outside

    def fail(self, code: int, message: str) -> None:
        """It cannot be provisioned."""
        self.message.state.failed_data.error.code = code
        self.message.state.failed_data.error.message = message
        self._stop(State.FAILED, NodeState.TERMINATED)

    def suspend(self) -> None:
        """Its nodes are taken away, all at once; it stays, and counts."""
        self._stop(State.SUSPENDED, NodeState.PREEMPTED)

    def end(self, forget: Callable[[], None]) -> None:
        """Delete it, with its nodes."""
        self._stop(State.DELETING, NodeState.DELETING)
        self._life = asyncio.ensure_future(self._vanish(forget))

    async def _vanish(self, forget: Callable[[], None]) -> None:
        await self._leave()
        forget()

    def reboot(self, node: str, host: int) -> None:
        self.hosts[node][host].boot(self.nodes[node].metadata.get("startup-script", ""))

    def shut_down(self, node: str, host: int) -> None:
        """One host is gone for good."""
        self.hosts[node][host].shut_down()
        self.nodes[node].state = NodeState.REPAIRING

    def close(self) -> None:
        self._life.cancel()
        for hosts in self.hosts.values():
            for host in hosts:
                host.close()

    def _stop(self, state: Any, node_state: Any) -> None:
        self.close()
        for node in self.nodes.values():
            node.state = node_state
        self._set(state)

    def _set(self, state: Any) -> None:
        self.message.state.state = state


def _with_project_number(name: str) -> str:
    """As nodes name their queued resource, whatever the project was called in the request."""
    return f"projects/{_PROJECT_NUMBER}/locations/{name.partition('/locations/')[2]}"


def _node_ids(spec: Any, resource: str) -> list[str]:
    if "multislice_params" not in spec:
        return [spec.node_id]
    prefix = spec.multislice_params.node_id_prefix or resource.rpartition("/")[2]
    return [f"{prefix}-{index}" for index in range(spec.multislice_params.node_count)]
