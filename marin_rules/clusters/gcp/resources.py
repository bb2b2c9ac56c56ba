"""The resources of a job on Google Cloud, under the names that users write in `set-resources`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marin_rules.units import memory_text, minutes_text

LONGEST_MINUTES = 14 * 24 * 60
"""Batch fails a job that runs longer."""

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
    "gcp_image",
    "gcp_tpu",
    "gcp_tpu_topology",
    "gcp_tpu_slices",
    "gcp_tpu_zones",
    "gcp_tpu_provisioning",
)
"""`gcp_zones` has spaces between the zones, `gcp_gpu` is a kind and a number, `nvidia-tesla-t4:2`, `gcp_provisioning`
one of Batch's words: STANDARD, SPOT, FLEX_START, RESERVATION_BOUND. `gcp_tpu` has spaces between acceptable types, the
preferred one first; the other machine of a TPU step is the small one of its worker."""


def describe(resources: Mapping[str, Any]) -> str:
    """Where a job goes, in a few words."""
    minutes = resources.get("runtime")
    if resources.get("gcp_tpu"):
        return _describe_tpu(resources)
    gpu, _, count = str(resources.get("gcp_gpu") or "").partition(":")
    nodes = resources.get("nodes") or 1
    provisioning = str(resources.get("gcp_provisioning") or "")
    parts = [
        ("" if nodes == 1 else f"{nodes} x ")
        + str(resources.get("gcp_machine_type") or "Batch's own choice of machine"),
        f"{count} {gpu}" if gpu else "",
        _provisioning(provisioning),
        str(resources.get("gcp_zones") or resources.get("gcp_region") or ""),
        memory_text(resources["mem_mb"]) if resources.get("mem_mb") else "",
        minutes_text(minutes) if minutes else "",
    ]
    return ", ".join(part for part in parts if part)


def _describe_tpu(resources: Mapping[str, Any]) -> str:
    minutes = resources.get("runtime")
    slices = resources.get("gcp_tpu_slices") or 1
    kinds = " or ".join(str(resources["gcp_tpu"]).split())
    parts = [
        f"TPU {kinds}" if slices == 1 else f"{slices} x TPU {kinds}",
        _provisioning(str(resources.get("gcp_tpu_provisioning") or "")),
        str(resources.get("gcp_tpu_zones") or ""),
        minutes_text(minutes) if minutes else "",
    ]
    return ", ".join(part for part in parts if part)


def _provisioning(word: str) -> str:
    return "" if word in ("", "STANDARD") else {"SPOT": "Spot"}.get(word, word)
