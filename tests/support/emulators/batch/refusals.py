"""What Batch refuses when a job is created, and the defaults that it fills in."""

from __future__ import annotations

import re
from typing import Any

from google.cloud import batch_v1

from support.emulators.rpc.errors import invalid

PROJECT_NUMBER = "1234567890"

ZONES = {
    "us-central1": ("a", "b", "c", "f"),
    "us-central2": ("b",),
    "us-east1": ("b", "c", "d"),
    "us-east5": ("a", "b", "c"),
    "europe-west4": ("a", "b", "c"),
}
"""The regions of the emulated world, and the last letters of their zones."""

_JOB_ID = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_LARGEST_DEFINITION = 1_000_000
_MOST_TASKS = 100_000
_MOST_PARALLEL = 5_000
_LONGEST_SECONDS = 14 * 24 * 3600
_HYPERDISK_SERIES = ("c4-", "c4a-", "c4d-", "n4-", "n4d-", "z3-", "a4-", "a3-ultragpu-")


def check(request: Any) -> None:
    """Raise what Batch answers to a request that it does not take."""
    if not _JOB_ID.fullmatch(request.job_id):
        raise invalid(f"job_id {request.job_id!r} does not match {_JOB_ID.pattern}")
    region = request.parent.rpartition("/")[2]
    if region not in ZONES:
        raise invalid(f"Location {region} is not found or access is unauthorized.")
    if type(request).pb(request).ByteSize() > _LARGEST_DEFINITION:
        raise invalid("The job definition is larger than 1 MB.")
    job = request.job
    for labels in (job.labels, job.allocation_policy.labels):
        _check_labels(labels)
    if len(job.task_groups) != 1:
        raise invalid(f"Job must have exactly one task group, and has {len(job.task_groups)}.")
    _check_group(job.task_groups[0])
    _check_locations(job, region)
    _check_disk(job)


def _check_labels(labels: Any) -> None:
    if len(labels) > 64:
        raise invalid("At most 64 labels.")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise invalid(f"Label {key}={value} has characters or a length that labels may not have.")
        if key.startswith(("goog-", "google-")):
            raise invalid(f"Label {key} is reserved.")


def _check_group(group: Any) -> None:
    spec = group.task_spec
    if not spec.runnables:
        raise invalid("task_spec.runnables is required.")
    if len(spec.lifecycle_policies) > 1:
        raise invalid("At most one lifecycle policy.")
    if not 0 <= spec.max_retry_count <= 10:
        raise invalid(f"max_retry_count {spec.max_retry_count} is not in [0, 10].")
    if group.task_count > _MOST_TASKS or len(group.task_environments) > _MOST_TASKS:
        raise invalid(f"At most {_MOST_TASKS} tasks.")
    if group.parallelism > _MOST_PARALLEL:
        raise invalid(f"At most {_MOST_PARALLEL} tasks in parallel.")
    if spec.max_run_duration and spec.max_run_duration.total_seconds() > _LONGEST_SECONDS:
        raise invalid("max_run_duration is longer than 14 days.")


def _check_locations(job: Any, region: str) -> None:
    allowed = job.allocation_policy.location.allowed_locations
    zones = {f"zones/{region}-{letter}" for letter in ZONES[region]}
    outside = [place for place in allowed if place != f"regions/{region}" and place not in zones]
    if outside:
        raise invalid(f"allowed_locations {', '.join(outside)} are not in the job's region {region}.")


def _check_disk(job: Any) -> None:
    for instance in job.allocation_policy.instances:
        policy = instance.policy
        kind = policy.boot_disk.type_
        needs_hyperdisk = policy.machine_type.startswith(_HYPERDISK_SERIES)
        if kind and needs_hyperdisk != kind.startswith("hyperdisk"):
            raise invalid(f"[{kind}] features are not compatible for machine type {policy.machine_type}.")


def filled_in(request: Any) -> Any:
    """The job of a request with what Batch adds to it. The name of its task group has the project's number."""
    job = batch_v1.Job.deserialize(batch_v1.Job.serialize(request.job))
    region = request.parent.rpartition("/")[2]
    project = request.parent.split("/")[1]
    job.name = f"{request.parent}/jobs/{request.job_id}"
    group = job.task_groups[0]
    group.name = job.name.replace(f"projects/{project}/", f"projects/{PROJECT_NUMBER}/") + "/taskGroups/group0"
    group.task_count = len(group.task_environments) or group.task_count or 1
    group.parallelism = group.parallelism or min(group.task_count, _MOST_PARALLEL)
    resource = group.task_spec.compute_resource
    resource.cpu_milli = resource.cpu_milli or 2000
    resource.memory_mib = resource.memory_mib or 2000
    policy = job.allocation_policy
    places = policy.location.allowed_locations
    if not places or f"regions/{region}" in places:
        zones = [f"zones/{region}-{letter}" for letter in ZONES[region]]
        policy.location.allowed_locations = [f"regions/{region}", *zones]
    if not policy.service_account.email:
        policy.service_account.email = f"{PROJECT_NUMBER}-compute@developer.gserviceaccount.com"
    if not policy.instances:
        policy.instances = [batch_v1.AllocationPolicy.InstancePolicyOrTemplate()]
    instance = policy.instances[0].policy
    instance.machine_type = instance.machine_type or "e2-standard-2"
    instance.provisioning_model = instance.provisioning_model or batch_v1.AllocationPolicy.ProvisioningModel.STANDARD
    return job
