"""What a job on Google Cloud is told about itself: by Batch which of its tasks it is, by its definition everything
else.

There are three kinds of machines: that of a step's worker, the only one for most steps; the others of a job with
several machines; and hosts of TPU slices, which the worker of a step creates.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from marin_rules.clusters.allocation import EndCause
from marin_rules.clusters.gcp.job_variables import (
    ARRAY_VARIABLE,
    CPUS_VARIABLE,
    DEADLINE_VARIABLE,
    ELEMENT_VARIABLE,
    HOST_VARIABLE,
    JOB_VARIABLE,
    MACHINES_VARIABLE,
    MEETING_VARIABLE,
    NODE_VARIABLE,
    SLICE_VARIABLE,
    SLICES_VARIABLE,
)
from marin_rules.clusters.protocol import ClusterError, element_id
from marin_rules.storage.metadata import is_google_machine, machine_zone

if TYPE_CHECKING:
    from marin_rules.clusters.gcp.host import Host
    from marin_rules.clusters.gcp.host_ranks import HostRanks
    from marin_rules.machines import MachineRequest

__all__ = ["JOB_VARIABLE", "BatchAllocation", "allocation_from"]


@dataclass(frozen=True)
class BatchAllocation:
    """A job of Batch."""

    job_id: str
    nodes: str
    restarts: int = 0
    cpus: int | None = None
    deadline: float | None = None
    element: int | None = None
    node_count: int = 1
    rank: int = 0
    """Which of the machines of the job this is."""

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Everything that the job was given."""

    cluster: Literal["gcp"] = field(default="gcp", init=False)

    def ranks(self, request: MachineRequest) -> HostRanks | None:
        if SLICES_VARIABLE in self.variables:
            return self._slice_ranks()
        return None if self.node_count == 1 else self._machine_ranks()

    def _slice_ranks(self) -> HostRanks:
        from marin_rules.clusters.gcp.host_ranks import HostRanks
        from marin_rules.clusters.gcp.meeting import Pace
        from marin_rules.clusters.gcp.slice_machines import SliceMachines
        from marin_rules.clusters.gcp.slice_order import SliceOrder
        from marin_rules.clusters.gcp.slices import Slices

        order = SliceOrder.from_json(self.variables[SLICES_VARIABLE])
        machines = SliceMachines(order.plan(dict(self.variables)), Slices(order.project), Pace.current())
        return HostRanks(machines, self._seconds_left)

    def _machine_ranks(self) -> HostRanks:
        from marin_rules.clusters.gcp.batch_machines import BatchMachines
        from marin_rules.clusters.gcp.host_ranks import HostRanks
        from marin_rules.clusters.gcp.meeting import Meeting, Pace

        machines = BatchMachines(
            meeting=Meeting(self.variables[MEETING_VARIABLE]),
            count=self.node_count,
            pace=Pace.current(),
            first=sys.orig_argv,
            variables={**self.variables, HOST_VARIABLE: "0"},
        )
        return HostRanks(machines, self._seconds_left)

    def _seconds_left(self) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - time.time())

    def other_machine(self) -> Host | None:
        if SLICE_VARIABLE in self.variables:
            from marin_rules.clusters.gcp.slice_host import host_of_slice

            return host_of_slice(self.variables)
        if self.node_count == 1 or (self.rank == 0 and HOST_VARIABLE not in self.variables):
            return None
        from marin_rules.clusters.gcp.host import Host
        from marin_rules.clusters.gcp.meeting import Meeting, Pace

        pace = Pace.current()
        return Host(
            Meeting(self.variables[MEETING_VARIABLE]),
            self.rank,
            address=socket.gethostbyname(socket.gethostname()),
            # No other worker will take over these machines: they end with their job.
            pace=replace(pace, orphaned=pace.silent),
        )

    def why_told_to_end(self) -> EndCause:
        from marin_rules.clusters.gcp.job_end import why_told_to_end  # Workers of steps do not need it.

        return why_told_to_end(self.job_id)

    @property
    def may_start_again(self) -> bool:
        return False

    def start_again(self) -> None:
        raise ClusterError("Google Batch cannot restart a running job")

    def to_fields(self) -> dict[str, Any]:
        fields = {
            "job_id": self.job_id,
            "nodes": self.nodes,
            "zone": machine_zone() if is_google_machine() else None,
            "restarts": self.restarts,
            "cpus_per_task": self.cpus,
        }
        if self.node_count > 1:
            fields["node_count"] = self.node_count
        return {name: value for name, value in fields.items() if value not in ("", None)}


def allocation_from(variables: Mapping[str, str]) -> BatchAllocation | None:
    """The job that these variables are from, None outside of Google Cloud."""
    job = variables.get(JOB_VARIABLE)
    if not job:
        return None
    element = None
    index = _number(variables.get("BATCH_TASK_INDEX"))
    if ARRAY_VARIABLE in variables:
        element = _number(variables.get(ELEMENT_VARIABLE, variables.get("BATCH_TASK_INDEX")))
    return BatchAllocation(
        job_id=job if element is None else element_id(job, element),
        nodes=variables.get(NODE_VARIABLE, ""),
        restarts=_number(variables.get("BATCH_TASK_RETRY_ATTEMPT")) or 0,
        cpus=_number(variables.get(CPUS_VARIABLE)),
        deadline=_number(variables.get(DEADLINE_VARIABLE)),
        element=element,
        node_count=_number(variables.get(MACHINES_VARIABLE)) or 1,
        rank=index or 0,
        variables=dict(os.environ) if variables is os.environ else dict(variables),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
