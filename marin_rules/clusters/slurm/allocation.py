"""What Slurm tells a job of itself, through its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

DRIVER_JOB_VARIABLE = "MARIN_RULES_DRIVER_JOB"
"""The job that the driver itself is part of, if it is: steps beside it have no job of their own."""


@dataclass(frozen=True)
class Allocation:
    """The job that this process is part of."""

    job_id: str
    nodes: str
    """The machines of the job, in Slurm's short form: `gpu[1-4]`."""

    node_count: int
    partition: str
    restarts: int
    """How often Slurm itself has started the job again."""

    gpus: str = ""
    """What the first machine lets the job see."""

    cpus_per_task: int | None = None

    @classmethod
    def current(cls, environment: Mapping[str, str] | None = None) -> Self | None:
        """The job that we are in, None outside of Slurm."""
        variables = os.environ if environment is None else environment
        job_id = variables.get("SLURM_JOB_ID")
        if job_id is None:
            return None
        cpus = variables.get("SLURM_CPUS_PER_TASK", "")
        return cls(
            job_id=job_id,
            nodes=variables.get("SLURM_JOB_NODELIST", ""),
            node_count=int(variables.get("SLURM_JOB_NUM_NODES", 1)),
            partition=variables.get("SLURM_JOB_PARTITION", ""),
            restarts=int(variables.get("SLURM_RESTART_COUNT", 0)),
            gpus=variables.get("CUDA_VISIBLE_DEVICES", ""),
            cpus_per_task=int(cpus) if cpus.isdecimal() else None,
        )

    def to_fields(self) -> dict[str, Any]:
        """The job as it stands in info files."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}
