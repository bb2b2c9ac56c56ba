"""Why a job or a TPU slice has no machines, and what a person can do: pure, based on Google's messages.

A job that waits for its machines to start is fine, and nothing is said about it.
"""

from __future__ import annotations

import re

_QUOTA = re.compile(
    r"Quota '(?P<name>\w+)' exceeded\.\s+Limit: (?P<limit>[\d.]+)(?: in region (?P<region>[a-z0-9-]+))?"
)

MORE_SLICES = (
    "name more zones for it under gcp.tpus of the cluster's file, write `on_demand: true` there, get a reservation, or"
    " give with_tpu() several types"
)
"""What to do when a TPU slice does not arrive."""

_NO_SLICE = "no TPU slice"
_ON_ITS_WAY = re.compile(r": (CREATING|ACCEPTED|PROVISIONING)\)$")
_IN_A_QUEUE = re.compile(r"\bWAITING_FOR_RESOURCES\b")
_OUT_OF_SLICES = re.compile(r"capacity|stock|not enough resources|insufficient|valid_until", re.IGNORECASE)
_QUOTAS = "https://console.cloud.google.com/iam-admin/quotas"


def no_slice(why: str) -> str:
    """The reason of a job whose worker has no TPU slice."""
    return f"{_NO_SLICE} ({why})"


def advice_about(reason: str) -> str | None:
    """What to do about a job that waits for this reason; None if nothing has to be done."""
    if reason.startswith(_NO_SLICE):
        return _about_missing_slice(reason)
    code = reason.partition(":")[0]
    if code == "CODE_GCE_QUOTA_EXCEEDED":
        return _about_quota(reason)
    if "RESOURCE_POOL_EXHAUSTED" in code:
        return (
            "Google has no such machines there now; name more zones or another region in the cluster's file, ask for"
            " other machines, or leave out preemptible=True"
        )
    if code.startswith("CODE_"):
        return (
            "it gets no machines until this is fixed; `gcloud batch jobs describe` shows all that Google says about it"
        )
    return None


def _about_missing_slice(reason: str) -> str | None:
    if _ON_ITS_WAY.search(reason):
        return None
    if _IN_A_QUEUE.search(reason):
        return f"if that lasts, {MORE_SLICES}"
    return advice_about_slice(reason) or "its worker keeps trying; `marin-rules jobs logs` shows the answers it got"


def _about_quota(reason: str) -> str:
    found = _QUOTA.search(reason)
    what = "a quota of the project"
    if found is not None:
        where = f" in {found['region']}" if found["region"] else ""
        what = f"the quota {found['name']} of the project, {float(found['limit']):g}{where},"
    return (
        f"{what} is used up: the job starts once other machines have ended, or never if it needs more than"
        f" that on its own; request more at {_QUOTAS}"
    )


def advice_about_slice(reason: str) -> str | None:
    """What to do about a TPU slice that is unavailable for this reason; None if unknown."""
    if "quota" in reason.lower():
        return (
            "a quota of Cloud TPU is used up: `gcloud compute tpus queued-resources list --zone=ZONE` shows by what"
            f" (those that are SUSPENDED or FAILED count, too); ask for more at {_QUOTAS}"
        )
    return f"Google has none there now: {MORE_SLICES}" if _OUT_OF_SLICES.search(reason) else None
