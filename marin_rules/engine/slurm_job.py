"""What the Slurm job of a step asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marin_rules.clusters.slurm.site import Queue


def job_resources(
    job: Any, queue: Queue, *, qos: str | None = None, reservation: str | None = None
) -> Mapping[str, Any]:
    """What the job asks for; where a hand-written rule says nothing, what the cluster's file says of `queue`."""
    fallback = {
        "slurm_partition": queue.partition,
        "slurm_account": queue.account,
        "qos": qos or queue.qos,
        "runtime": queue.runtime,
        "reservation": reservation,
    }
    given = {name: value for name, value in job.resources.items() if value is not None}
    return {
        "cpus_per_task": job.threads,
        **{name: value for name, value in fallback.items() if value},
        **given,
    }
