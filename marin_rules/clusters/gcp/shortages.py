"""Why a job has no machines, and what a person can do: pure, by the words of Batch's events.

A job that waits for its machines to start is as it should be, and nothing is said about it.
"""

from __future__ import annotations

import re

_QUOTA = re.compile(
    r"Quota '(?P<name>\w+)' exceeded\.\s+Limit: (?P<limit>[\d.]+)(?: in region (?P<region>[a-z0-9-]+))?"
)


def advice_about(reason: str) -> str | None:
    """What to do about a job that waits for this reason; None if nothing has to be done."""
    code = reason.partition(":")[0]
    if code == "CODE_GCE_QUOTA_EXCEEDED":
        return _about_quota(reason)
    if "RESOURCE_POOL_EXHAUSTED" in code:
        return (
            "Google has no such machines there now; name more zones or another region in the cluster's file, ask for"
            " other machines, or leave out preemptible=True"
        )
    if code.startswith("CODE_"):
        return "it gets no machines until this is mended; `gcloud batch jobs describe` has all that Google says of it"
    return None


def _about_quota(reason: str) -> str:
    found = _QUOTA.search(reason)
    what = "a quota of the project"
    if found is not None:
        where = f" in {found['region']}" if found["region"] else ""
        what = f"the quota {found['name']} of the project, {float(found['limit']):g}{where},"
    return (
        f"{what} is used up: it starts once other machines have ended, or never if it alone asks for more; ask for more"
        " at https://console.cloud.google.com/iam-admin/quotas"
    )
