"""What Cloud TPU refuses when a queued resource is created, and how many hosts a slice has."""

from __future__ import annotations

import re
from typing import Any

from support.emulators.rpc.errors import invalid
from support.emulators.rpc.judge import objections
from support.emulators.rpc.server import document_of

ZONES = {
    "us-central2-b": ("v4",),
    "us-central1-a": ("v5litepod", "v5p"),
    "us-east5-b": ("v5litepod", "v6e"),
    "us-east1-d": ("v6e",),
    "europe-west4-a": ("v5litepod", "v6e"),
}
"""The zones of the emulated world, and the generations that each has."""

_ID = re.compile(r"[A-Za-z0-9_.~+%-]+")
_TYPE = re.compile(r"(v2|v3|v4|v5p|v5litepod|v6e)-(\d+)")


def check(request: Any) -> None:
    """Raise what Cloud TPU answers to a request that it does not take."""
    if not _ID.fullmatch(request.queued_resource_id):
        raise invalid(f"queued_resource_id {request.queued_resource_id!r} does not match {_ID.pattern}")
    zone = request.parent.rpartition("/")[2]
    if zone not in ZONES:
        raise invalid(f"Location {zone} is not found or access is unauthorized.")
    wrong = objections("tpu.v2", "QueuedResource", document_of(request.queued_resource))
    if wrong:
        raise invalid(f"Google's discovery document objects: {'; '.join(wrong)}")
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
    kind = _TYPE.fullmatch(spec.node.accelerator_type)
    if kind is None or kind[1] not in ZONES[zone]:
        raise invalid(f"Accelerator type {spec.node.accelerator_type!r} is not available in zone {zone}.")


def host_count(accelerator_type: str) -> int:
    """A v4 or v5p counts TensorCores, two a chip; four chips a host, but up to eight v5e or v6e chips are one host."""
    kind = _TYPE.fullmatch(accelerator_type)
    assert kind is not None, accelerator_type
    size = int(kind[2])
    if kind[1] in ("v5litepod", "v6e"):
        return 1 if size <= 8 else size // 4
    return max(1, size // 8)
