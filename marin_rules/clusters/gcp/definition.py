"""The definition of a Batch job, as the JSON that Google documents: pure.

One task group; an array has a task for each element, any other job a single task. Each task has a machine to itself.
Batch does not start a task again: whether a job is submitted once more is decided in one place, `clusters.policy`.

The definition can be read by everybody who may look at jobs of the project. So a variable that looks like a secret, by
its name or by a password in an address, is not written into it: the cluster's file names its place in Secret Manager,
or leaves it out.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from marin_rules.clusters.gcp import names
from marin_rules.clusters.gcp.job_variables import (
    ARRAY_VARIABLE,
    CPUS_VARIABLE,
    DEADLINE_VARIABLE,
    ELEMENT_VARIABLE,
    JOB_VARIABLE,
    NODE_VARIABLE,
)
from marin_rules.clusters.gcp.machine_types import boot_disk_of
from marin_rules.clusters.gcp.site import LONGEST_MINUTES, GcpSite
from marin_rules.clusters.protocol import JobRequest, RefusedError
from marin_rules.software.credentials import without_credentials

LARGEST_BYTES = 1_000_000
"""Of a definition: Batch takes no more than a megabyte."""

_SYSTEM_GIGABYTES = 30
"""What the operating system and the image of a container take of the boot disk."""

_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIALS?)(_|$)", re.IGNORECASE
)
_FILES_HERE = frozenset(("GOOGLE_APPLICATION_CREDENTIALS",))
"""Variables that name a file of the driver's machine. A machine of Google Cloud has its service account instead."""


def job_definition(request: JobRequest, site: GcpSite, job: str, owner: str) -> dict[str, Any]:
    """The definition of the job with this id; `RefusedError` for what Batch would not take."""
    if request.excluded_nodes:
        raise RefusedError(f"machines of Batch have no names to exclude: {', '.join(request.excluded_nodes)}")
    labels = {
        **site.labels,
        **(names.tag_labels(request.tag) if request.tag is not None else {}),
        names.OURS: "true",
        names.OWNER: names.label_value(owner),
        names.JOB: job,
        **({names.ARRAY: "true"} if request.elements is not None else {}),
    }
    definition = {
        "taskGroups": [_task_group(request, site, job)],
        "allocationPolicy": _allocation(request.resources, site, labels),
        "labels": labels,
        "logsPolicy": {"destination": "CLOUD_LOGGING"},
    }
    size = len(json.dumps(definition).encode())
    if size > LARGEST_BYTES:
        raise RefusedError(
            f"the definition of job {request.name} has {size:,} bytes, and Batch takes {LARGEST_BYTES:,}: give the step"
            " fewer or shorter variables"
        )
    return definition


def _task_group(request: JobRequest, site: GcpSite, job: str) -> dict[str, Any]:
    resources, elements = request.resources, request.elements
    spec: dict[str, Any] = {
        "runnables": [_runnable(request, site)],
        "environment": _environment(request, site, job),
        "computeResource": _compute_resource(resources),
        "maxRetryCount": 0,
    }
    minutes = resources.get("runtime")
    if minutes:
        spec["maxRunDuration"] = f"{_checked_minutes(minutes) * 60}s"
    group: dict[str, Any] = {"taskSpec": spec, "taskCountPerNode": "1"}
    if elements is None:
        return {**group, "taskCount": "1"}
    if request.at_once is not None:
        group["parallelism"] = str(request.at_once)
    if is_gapless(elements):
        return {**group, "taskCount": str(len(elements))}
    return {**group, "taskEnvironments": [{"variables": {ELEMENT_VARIABLE: str(element)}} for element in elements]}


def is_gapless(elements: Sequence[int]) -> bool:
    """Whether the elements of an array have the numbers that Batch gives to its tasks."""
    return list(elements) == list(range(len(elements)))


def _runnable(request: JobRequest, site: GcpSite) -> dict[str, Any]:
    minutes = request.resources.get("runtime")
    lines = [f'export {NODE_VARIABLE}="$(hostname)"']
    if minutes:
        lines.append(f"export {DEADLINE_VARIABLE}=$(($(date +%s) + {_checked_minutes(minutes) * 60}))")
    lines += [f"cd {shlex.quote(request.folder)} || exit", request.script]
    text = "\n".join(lines)
    if site.image is None:
        return {"script": {"text": f"#!/usr/bin/env bash\n{text}\n"}}
    return {
        "container": {
            "imageUri": site.image,
            "entrypoint": "/bin/bash",
            "commands": ["-c", text],
            "options": "--network=host --ipc=host",  # Ranks meet at addresses of machines; PyTorch shares memory.
        }
    }


def _environment(request: JobRequest, site: GcpSite, job: str) -> dict[str, Any]:
    plain: dict[str, str] = {}
    secret: dict[str, str] = {}
    for name, value in request.variables.items():
        if name in site.secrets:
            if (place := site.secrets[name]) is not None:
                secret[name] = place
        elif name in _FILES_HERE:
            if not value:
                plain[name] = value
        elif (_SECRET_NAME.search(name) and value) or without_credentials(value) != value:
            raise RefusedError(
                f"the variable {name} looks like a secret, and everybody who sees jobs of {site.project} could read it:"
                f" store it in Secret Manager and write its place into the file of cluster {site.name}, as in"
                f" `gcp: {{secrets: {{{name}: projects/{site.project}/secrets/NAME/versions/latest}}}}`, or `{name}:`"
                " with nothing behind it to leave it out"
            )
        else:
            plain[name] = value
    plain[JOB_VARIABLE] = job
    if request.elements is not None:
        plain[ARRAY_VARIABLE] = "true"
    if cpus := request.resources.get("cpus_per_task"):
        plain[CPUS_VARIABLE] = str(cpus)
    return {"variables": plain, **({"secretVariables": secret} if secret else {})}


def _compute_resource(resources: Mapping[str, Any]) -> dict[str, str]:
    found = {"cpuMilli": _times(resources.get("cpus_per_task"), 1000), "memoryMib": resources.get("mem_mb")}
    return {name: str(value) for name, value in found.items() if value}


def _allocation(resources: Mapping[str, Any], site: GcpSite, labels: Mapping[str, str]) -> dict[str, Any]:
    region = resources.get("gcp_region") or site.region
    zones = str(resources.get("gcp_zones") or "").split()
    outside = [zone for zone in zones if not zone.startswith(f"{region}-")]
    if outside:
        raise RefusedError(f"a job in {region} cannot have machines in {', '.join(outside)}: name zones of {region}")
    gpu, _, count = str(resources.get("gcp_gpu") or "").partition(":")
    machine_type = resources.get("gcp_machine_type")
    disk: dict[str, Any] = {"sizeGb": str(-(-(resources.get("disk_mb") or 0) // 1024) + _SYSTEM_GIGABYTES)}
    if machine_type:
        disk["type"] = boot_disk_of(machine_type)
    if site.boot_image is not None:
        disk["image"] = site.boot_image
    policy = {
        "machineType": machine_type,
        "provisioningModel": resources.get("gcp_provisioning") or "STANDARD",
        "accelerators": [{"type": gpu, "count": count or "1"}] if gpu else None,
        "bootDisk": disk,
        "reservation": resources.get("gcp_reservation"),
    }
    interface = {
        "network": site.network,
        "subnetwork": site.subnetwork,
        "noExternalIpAddress": None if site.external_address else True,
    }
    allocation: dict[str, Any] = {
        "location": {"allowedLocations": [f"zones/{zone}" for zone in zones] or [f"regions/{region}"]},
        "instances": [{"policy": _present(policy), **({"installGpuDrivers": True} if gpu else {})}],
        "labels": dict(labels),
    }
    if site.service_account is not None:
        allocation["serviceAccount"] = {"email": site.service_account}
    if present := _present(interface):
        allocation["network"] = {"networkInterfaces": [present]}
    return allocation


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _times(number: int | None, factor: int) -> int | None:
    return None if number is None else number * factor


def _checked_minutes(minutes: int) -> int:
    if minutes > LONGEST_MINUTES:
        raise RefusedError(f"Batch ends every job after 14 days: ask for less than {minutes} minutes")
    return minutes
