"""What zones of Cloud TPU offer, what is refused when a queued resource is created, how many hosts a slice has."""

from __future__ import annotations

import math
import re
from typing import Any

from support.emulators.rpc.errors import invalid

ZONES = {
    "us-central2-b": ("v4",),
    "us-central1-a": ("v5litepod", "v5p"),
    "us-east5-b": ("v5litepod", "v6e"),
    "us-east1-d": ("v6e",),
    "europe-west4-a": ("v5litepod", "v6e"),
}
"""The zones of the emulated world, and the generations that each has."""

_RUNTIMES = {
    "v4": "tpu-ubuntu2204-base",
    "v5litepod": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
"""A runtime version for each generation, as Google's pages recommend them."""

_ID = re.compile(r"[A-Za-z0-9_.~+%-]+")
_TYPE = re.compile(r"(v2|v3|v4|v5p|v5litepod|v6e)-(\d+)")


def accelerator_types(parent: str) -> list[str]:
    """What a zone offers."""
    return [f"{generation}-{size}" for generation in _generations(parent) for size in (8, 16, 32, 64, 128, 256)]


def runtime_versions(parent: str) -> list[str]:
    generations = _generations(parent)
    return ["tpu-vm-base", "tpu-ubuntu2204-base", *(_RUNTIMES[generation] for generation in generations)]


def _generations(parent: str) -> tuple[str, ...]:
    zone = parent.rpartition("/")[2]
    if zone not in ZONES:
        raise invalid(f"Location {zone} is not found or access is unauthorized.")
    return ZONES[zone]


def check(request: Any) -> None:
    """Raise what Cloud TPU answers to a request that it does not take."""
    if not _ID.fullmatch(request.queued_resource_id):
        raise invalid(f"queued_resource_id {request.queued_resource_id!r} does not match {_ID.pattern}")
    zone = request.parent.rpartition("/")[2]
    _generations(request.parent)
    if not request.queued_resource.tpu.node_spec:
        raise invalid("tpu.node_spec is required.")
    for spec in request.queued_resource.tpu.node_spec:
        _check_spec(spec, request.parent, zone)


def _check_spec(spec: Any, parent: str, zone: str) -> None:
    if spec.parent != parent:
        raise invalid(f"node_spec.parent {spec.parent!r} is not {parent!r}.")
    is_multislice = "multislice_params" in spec
    if bool(spec.node_id) == is_multislice:
        raise invalid("Either node_id or multislice_params is required.")
    if is_multislice and spec.multislice_params.node_count < 2:
        raise invalid("multislice_params.node_count must be greater than 1.")
    if not spec.node.runtime_version:
        raise invalid("node.runtime_version is required.")
    if spec.node.accelerator_type and "accelerator_config" in spec.node:
        raise invalid("Only one of accelerator_type and accelerator_config may be given.")
    kind = _kind_of(spec.node)
    if kind is None or kind[0] not in ZONES[zone]:
        raise invalid(f"Accelerator type {spec.node.accelerator_type!r} is not available in zone {zone}.")


def host_count(node: Any) -> int:
    """Four chips a host, but up to eight v5e or v6e chips are one host."""
    kind = _kind_of(node)
    assert kind is not None, node
    generation, chips = kind
    return 1 if chips <= (8 if generation in ("v5litepod", "v6e") else 4) else chips // 4


def _kind_of(node: Any) -> tuple[str, int] | None:
    """Generation and chips of a node; None for what there is not. A `v4-8` counts TensorCores, two a chip."""
    if "accelerator_config" in node:
        generation = node.accelerator_config.type_.name.lower().replace("_", "")
        return generation, math.prod(map(int, node.accelerator_config.topology.split("x")))
    kind = _TYPE.fullmatch(node.accelerator_type)
    if kind is None:
        return None
    return kind[1], int(kind[2]) if kind[1] in ("v5litepod", "v6e") else max(1, int(kind[2]) // 2)
