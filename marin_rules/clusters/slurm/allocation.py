"""What Slurm tells a job about itself, through its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from marin_rules.clusters.allocation import EndCause
from marin_rules.clusters.protocol import element_id
from marin_rules.clusters.slurm.ranks import SlurmRanks
from marin_rules.machines import MachineRequest

JOB_VARIABLE = "SLURM_JOB_ID"
"""Names the job to all of its processes. The elements of an array and the parts of a heterogeneous job differ in it."""


@dataclass(frozen=True)
class SlurmAllocation:
    """A job of Slurm; for a heterogeneous one its first component, on which the batch script runs."""

    job_id: str
    nodes: str
    """In Slurm's short form: `gpu[1-4]`."""

    node_count: int
    partition: str
    restarts: int
    gpus: str = ""
    """What the first machine lets the job see."""

    cpus: int | None = None
    deadline: float | None = None
    element: int | None = None
    cluster: Literal["slurm"] = field(default="slurm", init=False)

    def ranks(self, request: MachineRequest) -> SlurmRanks | None:
        if request.replicas == 1 or self.node_count == 1:
            return None
        return SlurmRanks(self.nodes, self.node_count, self.cpus)  # As many as it asks for, or as a profile says.

    def other_machine(self) -> None:
        """The script of a job runs on its first machine alone."""

    def why_told_to_end(self) -> EndCause:
        from marin_rules.clusters.slurm.job_end import why_told_to_end  # Workers of steps do not need it.

        return why_told_to_end(self.job_id, self.restarts)

    @property
    def may_start_again(self) -> bool:
        return True

    def start_again(self) -> None:
        from marin_rules.clusters.slurm.job_end import start_again

        start_again(self.job_id)

    def to_fields(self) -> dict[str, Any]:
        fields = {
            "job_id": self.job_id,
            "nodes": self.nodes,
            "node_count": self.node_count,
            "partition": self.partition,
            "restarts": self.restarts,
            "gpus": self.gpus,
            "cpus_per_task": self.cpus,
        }
        return {name: value for name, value in fields.items() if value not in ("", None)}


def allocation_from(variables: Mapping[str, str]) -> SlurmAllocation | None:
    """The job that these variables are from, None outside of Slurm."""
    job_id = variables.get(JOB_VARIABLE)
    if not job_id:
        return None

    def of_first_component(name: str) -> str:
        return variables.get(name) or variables.get(f"{name}_HET_GROUP_0", "")

    array, element = variables.get("SLURM_ARRAY_JOB_ID"), _number(variables.get("SLURM_ARRAY_TASK_ID"))
    return SlurmAllocation(
        job_id=element_id(array, element) if array and element is not None else job_id,
        nodes=of_first_component("SLURM_JOB_NODELIST"),
        node_count=_number(of_first_component("SLURM_JOB_NUM_NODES")) or 1,
        partition=of_first_component("SLURM_JOB_PARTITION"),
        restarts=_number(variables.get("SLURM_RESTART_COUNT")) or 0,
        gpus=variables.get("CUDA_VISIBLE_DEVICES", ""),
        cpus=_number(of_first_component("SLURM_CPUS_PER_TASK")),
        deadline=_number(variables.get("SLURM_JOB_END_TIME")),
        element=element if array else None,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
