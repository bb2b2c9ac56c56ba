"""What a job on Google Batch is told of itself: by Batch which of its tasks it is, by its definition all else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from marin_rules.clusters.gcp.job_variables import (
    ARRAY_VARIABLE,
    CPUS_VARIABLE,
    DEADLINE_VARIABLE,
    ELEMENT_VARIABLE,
    JOB_VARIABLE,
    NODE_VARIABLE,
)
from marin_rules.clusters.local_ranks import LocalRanks
from marin_rules.clusters.protocol import element_id

__all__ = ["JOB_VARIABLE", "BatchAllocation", "allocation_from"]


@dataclass(frozen=True)
class BatchAllocation:
    """A job of Batch, on one machine."""

    job_id: str
    nodes: str
    restarts: int = 0
    cpus: int | None = None
    deadline: float | None = None
    element: int | None = None
    cluster: Literal["gcp"] = field(default="gcp", init=False)
    node_count: Literal[1] = field(default=1, init=False)

    def ranks(self) -> LocalRanks:
        return LocalRanks(1)

    def to_fields(self) -> dict[str, Any]:
        fields = {"job_id": self.job_id, "nodes": self.nodes, "restarts": self.restarts, "cpus_per_task": self.cpus}
        return {name: value for name, value in fields.items() if value not in ("", None)}


def allocation_from(variables: Mapping[str, str]) -> BatchAllocation | None:
    """The job that these variables are from, None outside of Batch."""
    job = variables.get(JOB_VARIABLE)
    if not job:
        return None
    element = None
    if ARRAY_VARIABLE in variables:
        element = _number(variables.get(ELEMENT_VARIABLE, variables.get("BATCH_TASK_INDEX")))
    return BatchAllocation(
        job_id=job if element is None else element_id(job, element),
        nodes=variables.get(NODE_VARIABLE, ""),
        restarts=_number(variables.get("BATCH_TASK_RETRY_ATTEMPT")) or 0,
        cpus=_number(variables.get(CPUS_VARIABLE)),
        deadline=_number(variables.get(DEADLINE_VARIABLE)),
        element=element,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
