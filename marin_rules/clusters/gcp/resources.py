"""The resources of a job on Google Cloud, under the names that users write in `set-resources`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marin_rules.units import memory_text, minutes_text

RESOURCE_NAMES = (
    "mem_mb",
    "disk_mb",
    "runtime",
    "nodes",
    "cpus_per_task",
    "tasks_at_once",
    "gcp_region",
    "gcp_zones",
    "gcp_machine_type",
    "gcp_gpu",
    "gcp_provisioning",
    "gcp_reservation",
)
"""`gcp_zones` has spaces between the zones, `gcp_gpu` is a kind and a number, `nvidia-tesla-t4:2`, `gcp_provisioning`
one of Batch's words: STANDARD, SPOT, FLEX_START, RESERVATION_BOUND."""


def describe(resources: Mapping[str, Any]) -> str:
    """Where a job goes, in a few words."""
    minutes = resources.get("runtime")
    gpu, _, count = str(resources.get("gcp_gpu") or "").partition(":")
    provisioning = str(resources.get("gcp_provisioning") or "")
    parts = [
        str(resources.get("gcp_machine_type") or "Batch's own choice of machine"),
        f"{count} {gpu}" if gpu else "",
        "" if provisioning in ("", "STANDARD") else {"SPOT": "Spot"}.get(provisioning, provisioning),
        str(resources.get("gcp_zones") or resources.get("gcp_region") or ""),
        memory_text(resources["mem_mb"]) if resources.get("mem_mb") else "",
        minutes_text(minutes) if minutes else "",
    ]
    return ", ".join(part for part in parts if part)
