"""Whether a project is ready for its first run, judged from facts that the caller has fetched: pure.

A fact that could not be determined is an `Unanswered`, and what depends on it is not checked: nothing counts as missing
that was not looked at. Each failed check ends with what to type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from marin_rules.checks import Check, Unanswered, Verdict

QUOTA_PAGE = "https://console.cloud.google.com/iam-admin/quotas?project={project}"

CALLER_ROLES: Mapping[str, Sequence[str]] = {
    "batch.jobsEditor": ("batch.jobs.create", "batch.jobs.get", "batch.jobs.list", "batch.jobs.delete"),
    "logging.viewer": ("logging.logEntries.list",),
}
"""The roles that the user who starts a run needs, and permissions by which each is recognised: Google refuses a query
about an unknown permission, so only those that its pages name are here."""

ACCOUNT_ROLES = ("batch.agentReporter", "logging.logWriter")
"""What the account of the jobs needs in every project."""

TPU_ROLES = ("tpu.admin", "iam.serviceAccountUser")
"""What it also needs to create slices whose hosts act as itself."""

SECRET_ROLES = ("secretmanager.secretAccessor",)
"""What it also needs to read the values of variables."""

_WRITERS = ("storage.objectUser", "storage.objectAdmin", "storage.admin")
"""Roles with which objects of a bucket can be read, written and deleted."""

_GPU_QUOTAS = {
    "nvidia-l4": "NVIDIA_L4_GPUS",
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
    "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
    "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
    "nvidia-tesla-v100": "NVIDIA_V100_GPUS",
    "nvidia-h100-80gb": "NVIDIA_H100_GPUS",
}
_CPU_QUOTAS = {"e2": "CPUS", "n1": "CPUS", "n2": "N2_CPUS"}
"""Compute Engine's names for the quotas of GPUs and series that it lists with a region. Newer ones are elsewhere."""


@dataclass(frozen=True)
class Quota:
    """How much of something is allowed in a region."""

    limit: float
    usage: float = 0.0

    def __str__(self) -> str:
        return f"{self.limit:g}, of which {self.usage:g} are in use"


def about_service(project: str, service: str, states: Mapping[str, str] | Unanswered) -> Check:
    """Whether an API is enabled, by the states that Service Usage reports."""
    what = f"API {service}"
    command = f"gcloud services enable {service} --project={project}"
    if isinstance(states, Unanswered):
        return Check(what, Verdict.UNKNOWN, states.why, command)
    if states.get(service) == "ENABLED":
        return Check(what, Verdict.OK)
    return Check(what, Verdict.MISSING, "it is not enabled", command)


def about_role(project: str, member: str, role: str, granted: Set[str] | Unanswered) -> Check:
    """Whether the caller has a role, by the permissions that Google says the caller has."""
    what = f"role {role} for {member}"
    command = f"gcloud projects add-iam-policy-binding {project} --member={member} --role=roles/{role}"
    if isinstance(granted, Unanswered):
        return Check(what, Verdict.UNKNOWN, granted.why, command)
    lacking = [permission for permission in CALLER_ROLES[role] if permission not in granted]
    if not lacking:
        return Check(what, Verdict.OK)
    return Check(what, Verdict.MISSING, f"without {', '.join(lacking)}", command)


def about_account(
    project: str, member: str, email: str, is_disabled: bool | Unanswered | None, may_act: bool | Unanswered
) -> Check:
    """Whether jobs can act as an account; `is_disabled` is None if there is no such account."""
    what = f"service account {email}"
    name, _, host = email.partition("@")
    if is_disabled is None:
        own = host == f"{project}.iam.gserviceaccount.com"
        create = f"gcloud iam service-accounts create {name} --project={project}" if own else ""
        return Check(what, Verdict.MISSING, "there is no such account", create)
    if is_disabled is True:
        return Check(what, Verdict.MISSING, "it is disabled", f"gcloud iam service-accounts enable {email}")
    command = (
        f"gcloud iam service-accounts add-iam-policy-binding {email} --member={member}"
        f" --role=roles/iam.serviceAccountUser --project={project}"
    )
    if isinstance(may_act, Unanswered):
        return Check(what, Verdict.UNKNOWN, may_act.why, command)
    if not may_act:
        return Check(what, Verdict.MISSING, f"{member} may not start jobs that act as it", command)
    if isinstance(is_disabled, Unanswered):
        return Check(
            what, Verdict.OK, f"jobs may act as it; whether it is enabled could not be checked ({is_disabled.why})"
        )
    return Check(what, Verdict.OK)


def about_account_role(
    project: str, email: str, role: str, bindings: Mapping[str, Sequence[str]] | Unanswered
) -> Check:
    """Whether the account of the jobs has a role, by who has which role in the project.

    A role may come from a folder, a broader role or a group: one that is not found is not reported as missing.
    """
    what = f"role {role} for {email}"
    member = f"serviceAccount:{email}"
    command = f"gcloud projects add-iam-policy-binding {project} --member={member} --role=roles/{role}"
    if isinstance(bindings, Unanswered):
        return Check(what, Verdict.UNKNOWN, bindings.why, command)
    if member in bindings.get(f"roles/{role}", ()):
        return Check(what, Verdict.OK)
    detail = "the project itself does not grant it; a broader role, a group or a folder may"
    return Check(what, Verdict.UNKNOWN, detail, command)


def about_bucket_role(email: str, bucket: str, bindings: Mapping[str, Sequence[str]] | Unanswered) -> Check:
    """Whether the account of the jobs may write to a bucket, by who has which role for the bucket itself."""
    what = f"a role of {email} for bucket {bucket}"
    member = f"serviceAccount:{email}"
    command = (
        f"gcloud storage buckets add-iam-policy-binding gs://{bucket} --member={member} --role=roles/{_WRITERS[0]}"
    )
    if isinstance(bindings, Unanswered):
        return Check(what, Verdict.UNKNOWN, bindings.why, command)
    found = [role for role in _WRITERS if member in bindings.get(f"roles/{role}", ())]
    if found:
        return Check(what, Verdict.OK, found[0])
    return Check(what, Verdict.UNKNOWN, "the bucket itself grants none; its project, a group or a folder may", command)


def cpu_quota(series: str) -> str | None:
    """The quota that machines of a series count against; None if regions do not list it."""
    return _CPU_QUOTAS.get(series)


def gpu_quota(gpu: str) -> str | None:
    """The quota that GPUs count against, by Compute Engine's name of them."""
    return _GPU_QUOTAS.get(gpu)


def about_quota(
    project: str,
    region: str,
    machines: str,
    quota: str | None,
    quotas: Mapping[str, Quota] | Unanswered,
    *,
    spot: bool = False,
) -> Check:
    """Whether any `machines` of a kind are allowed in a region."""
    what = f"quota of {'Spot ' if spot else ''}{machines} in {region}"
    found = _applying(project, what, quota, quotas, spot=spot)
    if isinstance(found, Check):
        return found
    name, limit = found
    if limit.limit <= 0:
        return Check(what, Verdict.MISSING, f"{name} is 0", QUOTA_PAGE.format(project=project))
    return Check(what, Verdict.OK, f"{name} is {limit}")


def about_need(
    project: str,
    region: str,
    step: str,
    amount: int,
    quota: str | None,
    quotas: Mapping[str, Quota] | Unanswered,
    *,
    spot: bool = False,
) -> Check:
    """Whether a quota is large enough for a step. What others use now may be free later."""
    what = f"quota for step {step} in {region}"
    found = _applying(project, what, quota, quotas, spot=spot)
    if isinstance(found, Check):
        return found
    name, limit = found
    detail = f"it needs {amount}, and {name} is {limit}"
    if limit.limit < amount:
        return Check(what, Verdict.MISSING, detail, QUOTA_PAGE.format(project=project))
    return Check(what, Verdict.OK, detail)


def _applying(
    project: str, what: str, quota: str | None, quotas: Mapping[str, Quota] | Unanswered, *, spot: bool
) -> tuple[str, Quota] | Check:
    """The quota that applies, and its name; a check that could not be made if that is unknown.

    Spot machines without a quota of their own use that of the others; the cores of all series have one in common.
    """
    page = QUOTA_PAGE.format(project=project)
    if isinstance(quotas, Unanswered):
        return Check(what, Verdict.UNKNOWN, quotas.why, page)
    name = f"PREEMPTIBLE_{'CPUS' if quota is not None and quota.endswith('CPUS') else quota}"
    own = quotas.get(name)
    if spot and own is not None and own.limit > 0:
        return name, own
    found = None if quota is None else quotas.get(quota)
    if quota is None or found is None:
        return Check(what, Verdict.UNKNOWN, "Compute Engine does not list it with the region", page)
    return quota, found


def about_private_access(project: str, region: str, subnetwork: str, has_access: bool | Unanswered | None) -> Check:
    """Whether machines without an external address reach Google's services; None if there is no such subnetwork."""
    what = f"Private Google Access of subnetwork {subnetwork} in {region}"
    command = (
        f"gcloud compute networks subnets update {subnetwork} --region={region} --project={project}"
        " --enable-private-ip-google-access"
    )
    if isinstance(has_access, Unanswered):
        return Check(what, Verdict.UNKNOWN, has_access.why, command)
    if has_access is None:
        return Check(what, Verdict.MISSING, "there is no such subnetwork: name one in gcp.subnetwork")
    if has_access:
        return Check(what, Verdict.OK)
    return Check(what, Verdict.MISSING, "machines without an external address cannot reach the bucket", command)


def about_secret(variable: str, place: str, state: str | Unanswered | None) -> Check:
    """Whether the value of a variable is where the cluster's file says; None if there is no such version."""
    what = f"secret of {variable}"
    _, owner, _, name, _, version = place.split("/")
    if isinstance(state, Unanswered):
        return Check(what, Verdict.UNKNOWN, state.why, f"gcloud secrets versions describe {version} --secret={name}")
    if state == "ENABLED":
        return Check(what, Verdict.OK)
    command = f"gcloud secrets versions add {name} --data-file=- --project={owner}"
    return Check(what, Verdict.MISSING, f"{place} does not exist" if state is None else f"{place} is {state}", command)


def about_tpu_type(zone: str, wanted: str, offered: Sequence[str] | Unanswered) -> Check:
    """Whether a zone has an accelerator type (`v4-128`), or any of a generation (`v4`)."""
    what = f"TPU {wanted} in {zone}"
    command = f"gcloud compute tpus accelerator-types list --zone={zone}"
    if isinstance(offered, Unanswered):
        return Check(what, Verdict.UNKNOWN, offered.why, command)
    if any(name == wanted or name.startswith(f"{wanted}-") for name in offered):
        return Check(what, Verdict.OK)
    generations = sorted({name.rpartition("-")[0] for name in offered})
    return Check(what, Verdict.MISSING, f"the zone has {', '.join(generations) or 'no TPUs'}", command)


def about_tpu_runtime(zone: str, wanted: str, offered: Sequence[str] | Unanswered) -> Check:
    """Whether a zone has a runtime version."""
    what = f"TPU runtime version {wanted} in {zone}"
    command = f"gcloud compute tpus tpu-vm versions list --zone={zone}"
    if isinstance(offered, Unanswered):
        return Check(what, Verdict.UNKNOWN, offered.why, command)
    if wanted in offered:
        return Check(what, Verdict.OK)
    alike = [version for version in offered if version.startswith(wanted.rpartition("-")[0] or wanted)]
    return Check(
        what, Verdict.MISSING, f"similar ones are {', '.join(alike)}" if alike else "it is not offered", command
    )
