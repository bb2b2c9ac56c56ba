"""What Batch and Compute Engine would refuse in a job, by its resources and labels: pure.

So a mistake in a profile is found before the first step, and not when a job is created hours later. A machine type that
is not in our tables may exist anyway: only Google can tell whether it fits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sized
from typing import Any

from marin_rules.clusters.gcp.machine_types import MachineType, attached_gpus, machine_type
from marin_rules.clusters.gcp.resources import LONGEST_MINUTES
from marin_rules.clusters.protocol import RefusedError
from marin_rules.units import memory_text

PROVISIONING = ("STANDARD", "SPOT", "FLEX_START", "RESERVATION_BOUND")
"""Batch's names for the ways to provision machines."""

MOST_LABELS = 64
MOST_AT_ONCE = 5000
"""Tasks of a job that Batch runs at the same time."""

_LARGEST_DISK_MB = 64 * 1024 * 1024
_REGION = re.compile(r"[a-z]+(-[a-z]+)+[0-9]+")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")


def check_resources(resources: Mapping[str, Any]) -> None:
    """`RefusedError`, with what to write instead, for what no job can have."""
    _check_words(resources)
    minutes = resources.get("runtime")
    if minutes is not None and not 0 < minutes <= LONGEST_MINUTES:
        raise RefusedError(
            f"runtime={minutes} is not a time limit: Batch ends every job after 14 days, so write a number of minutes"
            f" from 1 to {LONGEST_MINUTES}"
        )
    if (resources.get("disk_mb") or 0) > _LARGEST_DISK_MB:
        raise RefusedError(f"no machine has a boot disk of {memory_text(resources['disk_mb'])}: the largest has 64 TB")
    machine = None if resources.get("gcp_tpu") else machine_type(str(resources.get("gcp_machine_type")))
    gpu, _, count = str(resources.get("gcp_gpu") or "").partition(":")
    if gpu and machine is not None:
        _check_gpus(machine, gpu, count or "1")


def check_size(resources: Mapping[str, Any]) -> None:
    """`RefusedError` for a machine type without the cores and the memory that go with it.

    For a first attempt: later ones ask for more memory, and get what there is.
    """
    machine = machine_type(str(resources.get("gcp_machine_type")))
    if machine is None or resources.get("gcp_tpu"):  # The cores and memory of these are those of hosts.
        return
    cores, memory = resources.get("cpus_per_task") or 0, resources.get("mem_mb") or 0
    if not machine.has(cores, memory):
        raise RefusedError(
            f"gcp_machine_type={machine.name} has {machine.cpus} cores and {memory_text(machine.memory_mb)}, but the"
            f" job asks for {cores} and {memory_text(memory)}: name a larger machine, or ask for less"
        )


def check_labels(labels: Sized) -> None:
    """`RefusedError` for more labels than Google accepts."""
    if len(labels) > MOST_LABELS:
        raise RefusedError(
            f"a job may have {MOST_LABELS} labels, and this one would have {len(labels)}, with those by which"
            " marin-rules finds it again: leave some out of gcp.labels in the cluster's file"
        )


def _check_words(resources: Mapping[str, Any]) -> None:
    for name in ("gcp_provisioning", "gcp_tpu_provisioning"):
        if (word := resources.get(name)) and word not in PROVISIONING:
            raise RefusedError(f"{name}={word} is not known to Batch: write one of {', '.join(PROVISIONING)}")
    region = resources.get("gcp_region")
    if region and not _REGION.fullmatch(str(region)):
        raise RefusedError(f"gcp_region={region} is not a region: write one such as us-central1")
    image = resources.get("gcp_image")
    if image and not _IMAGE.fullmatch(str(image)):
        raise RefusedError(
            f"{str(image)!r} is not the name of an image: write one such as"
            " us-central1-docker.pkg.dev/PROJECT/REPOSITORY/NAME:TAG"
        )


def _check_gpus(machine: MachineType, gpu: str, count: str) -> None:
    if not count.isdecimal():
        raise RefusedError(f"gcp_gpu={gpu}:{count} does not name a number of GPUs: write it as in nvidia-l4:1")
    possible = {machine.gpu: (machine.gpus,)} if machine.gpu else attached_gpus(machine.name)
    if int(count) in possible.get(gpu, ()):
        return
    found = [f"{number} {kind}" for kind, numbers in possible.items() for number in numbers]
    raise RefusedError(
        f"gcp_machine_type={machine.name} cannot have {count} {gpu}; it has {' or '.join(found) or 'no GPUs'}: change"
        " gcp_gpu or gcp_machine_type"
    )
