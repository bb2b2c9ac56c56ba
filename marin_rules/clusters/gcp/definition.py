"""The definition of a Batch job, as the JSON that Google documents: pure.

One task group; an array has a task for each element, a step on several machines one for each of them, any other job a
single task. Each task has a machine to itself. A step on TPU slices has one small machine, whose worker is told which
slices to get. Batch does not restart a task: whether a job is submitted again is decided in one place,
`clusters.policy`.

The definition can be read by everybody who may look at jobs of the project. So a variable that looks like a secret, by
its name or by its value (a password in an address, a private key), is not written into it: the cluster's file names its
place in Secret Manager, or leaves it out.
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
    MACHINES_VARIABLE,
    MEETING_VARIABLE,
    NODE_VARIABLE,
    SCRIPT_VARIABLE,
    SLICES_VARIABLE,
)
from marin_rules.clusters.gcp.limits import MOST_AT_ONCE, check_labels, check_resources, check_size
from marin_rules.clusters.gcp.machine_types import boot_disk_of, machine_type
from marin_rules.clusters.gcp.site import GcpSite
from marin_rules.clusters.gcp.slice_order import SliceOrder
from marin_rules.clusters.protocol import STEP_VARIABLE, JobRequest, RefusedError
from marin_rules.resources import tpu_topology
from marin_rules.software.credentials import without_credentials

LARGEST_BYTES = 1_000_000
"""The size of a definition: Batch accepts at most a megabyte."""

_SYSTEM_GIGABYTES = 30
"""What the operating system and a container image take of the boot disk."""

_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIALS?)(_|$)"
    r"|(^|_)(KEY|PAT|PASS|PWD|AUTH)$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"^(ghp|gho|ghs|github_pat|glpat|hf|sk|xox[abp]|npm|pypi)[_-][A-Za-z0-9_-]{16,}|^AKIA[0-9A-Z]{16}"
    r"|^AIza[A-Za-z0-9_-]{35}|^ya29\.|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
"""How the secrets of well-known services begin; and a private key, which a service account's file contains."""

_FILES_HERE = frozenset(("GOOGLE_APPLICATION_CREDENTIALS",))
"""Variables that name a file of the driver's machine. A machine of Google Cloud has its service account instead."""


def job_definition(request: JobRequest, site: GcpSite, job: str, owner: str) -> dict[str, Any]:
    """The definition of the job with this id; `RefusedError` for what Batch would not accept."""
    if request.excluded_nodes:
        raise RefusedError(f"machines of Batch cannot be excluded by name: {', '.join(request.excluded_nodes)}")
    check_resources(request.resources)
    labels = {
        **site.labels,
        **(names.tag_labels(request.tag) if request.tag is not None else {}),
        names.OURS: "true",
        names.OWNER: names.label_value(owner),
        names.JOB: job,
        **({names.ARRAY: "true"} if request.elements is not None else {}),
        **_accelerator_label(request.resources),
    }
    check_labels(labels)
    definition = {
        "taskGroups": [_task_group(request, site, job, labels)],
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


def check_request(request: JobRequest, site: GcpSite) -> None:
    """`RefusedError` for what Batch would not accept."""
    check_size(request.resources)
    job_definition(request, site, names.job_id(request.name, request.name, 1), "anybody")


def _accelerator_label(resources: Mapping[str, Any]) -> dict[str, str]:
    kinds = str(resources.get("gcp_tpu") or "").split()
    return {names.ACCELERATOR: names.label_value(kinds[0])} if kinds else {}


def _task_group(request: JobRequest, site: GcpSite, job: str, labels: Mapping[str, str]) -> dict[str, Any]:
    resources, elements = request.resources, request.elements
    spec: dict[str, Any] = {
        "runnables": [_runnable(request, site)],
        "environment": _environment(request, site, job, labels),
        "computeResource": _compute_resource(resources),
        "maxRetryCount": 0,
    }
    minutes = resources.get("runtime")
    if minutes:
        spec["maxRunDuration"] = f"{minutes * 60}s"
    group: dict[str, Any] = {"taskSpec": spec, "taskCountPerNode": "1"}
    if elements is None:
        machines = str(resources.get("nodes") or 1)
        # All at once: each waits for the others.
        return {**group, "taskCount": machines, **({"parallelism": machines} if machines != "1" else {})}
    if request.at_once is not None:
        group["parallelism"] = str(min(request.at_once, MOST_AT_ONCE))
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
        lines.append(f"export {DEADLINE_VARIABLE}=$(($(date +%s) + {minutes * 60}))")
    lines += [f"cd {shlex.quote(request.folder)} || exit", request.script]
    text = "\n".join(lines)
    image = request.resources.get("gcp_image") or site.image
    if image is None:
        return {"script": {"text": f"#!/usr/bin/env bash\n{text}\n"}}
    return {
        "container": {
            "imageUri": image,
            "entrypoint": "/bin/bash",
            "commands": ["-c", text],
            "options": "--network=host --ipc=host",  # Ranks meet at addresses of machines; PyTorch shares memory.
        }
    }


def _environment(request: JobRequest, site: GcpSite, job: str, labels: Mapping[str, str]) -> dict[str, Any]:
    plain, secret = _shared_out(request, site)
    if request.resources.get("gcp_tpu"):
        order = _slice_order(request, site, labels, plain, secret)
        script = f"cd {shlex.quote(request.folder)} || exit\n{request.script}"
        order.check({**plain, SCRIPT_VARIABLE: script}, job)
        plain |= {SLICES_VARIABLE: order.to_json(), SCRIPT_VARIABLE: script}
    elif (request.resources.get("nodes") or 1) > 1:
        plain[MACHINES_VARIABLE] = str(request.resources["nodes"])
        plain[MEETING_VARIABLE] = f"{request.meeting_place}/{job}"
    plain[JOB_VARIABLE] = job
    if request.elements is not None:
        plain[ARRAY_VARIABLE] = "true"
    if cpus := request.resources.get("cpus_per_task"):
        plain[CPUS_VARIABLE] = str(cpus)
    return {"variables": plain, **({"secretVariables": secret} if secret else {})}


def _slice_order(
    request: JobRequest,
    site: GcpSite,
    labels: Mapping[str, str],
    variables: Mapping[str, str],
    secrets: Mapping[str, str],
) -> SliceOrder:
    resources = request.resources
    if request.elements is not None:
        raise RefusedError(
            f"step {request.name} is divided into tasks, which get no TPUs on Google Cloud: give each of them a step of"
            " its own, or other machines"
        )
    kinds = str(resources["gcp_tpu"]).split()
    offers = site.offers_for(resources)
    if not offers:
        places = str(resources.get("gcp_tpu_zones") or "").split() or site.regions
        raise RefusedError(
            f"cluster {site.name} has no TPU {' or '.join(kinds)} in {', '.join(places)}: see gcp.tpus of its file"
        )
    tag = request.tag
    return SliceOrder(
        step=request.name,
        identity=request.name if tag is None else f"{tag.step} {tag.place}",
        project=site.project,
        offers=offers,
        slices=int(resources.get("gcp_tpu_slices") or 1),
        hosts=tpu_topology(kinds[0]).host_count,
        place=request.meeting_place,
        variables=sorted(variables),
        secrets=secrets,
        # A slice may outlive the job that made it.
        labels={name: value for name, value in labels.items() if name != names.JOB},
        image=resources.get("gcp_image") or site.image,
        network=site.network,
        subnetwork=site.subnetwork,
        external_address=site.external_address,
        service_account=site.service_account,
    )


def _shared_out(request: JobRequest, site: GcpSite) -> tuple[dict[str, str], dict[str, str]]:
    """The variables of a job, and where the values of the secret ones are."""
    plain: dict[str, str] = {}
    secret: dict[str, str] = {}
    for full_name, value in request.variables.items():
        name = full_name.removeprefix(STEP_VARIABLE)
        if name in site.secrets:
            if (place := site.secrets[name]) is not None:
                secret[full_name] = place
        elif name in _FILES_HERE:
            if not value:
                plain[full_name] = value
        elif (
            (_SECRET_NAME.search(name) and value) or _SECRET_VALUE.search(value) or without_credentials(value) != value
        ):
            raise RefusedError(
                f"the variable {name} looks like a secret, and everybody who sees jobs of {site.project} could read it:"
                f" store it in Secret Manager and write its place into the file of cluster {site.name}, as in"
                f" `gcp: {{secrets: {{{name}: projects/{site.project}/secrets/NAME/versions/latest}}}}`, or `{name}:`"
                " without a value to leave it out"
            )
        else:
            plain[full_name] = value
    return plain, secret


def _compute_resource(resources: Mapping[str, Any]) -> dict[str, str]:
    if resources.get("gcp_tpu"):
        return {"cpuMilli": "1000"}  # The rest is for the hosts of its slices.
    memory, machine = resources.get("mem_mb"), machine_type(str(resources.get("gcp_machine_type")))
    if memory and machine is not None:
        # A later attempt asks for more, and a profile may have named the machine.
        memory = min(memory, machine.memory_mb)
    found = {"cpuMilli": _times(resources.get("cpus_per_task"), 1000), "memoryMib": memory}
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
