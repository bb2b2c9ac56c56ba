"""Found by Snakemake by its name: `--executor marin-drmaa`, jobs through slurm-drmaa instead of sbatch.

The executor is `marin_rules.engine.cluster_executor`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from marin_rules.engine.cluster_executor import ClusterExecutor as Executor
from marin_rules.engine.cluster_settings import ClusterSettings, common_settings, option

__all__ = ["Executor", "ExecutorSettings", "common_settings"]


@dataclass
class ExecutorSettings(ClusterSettings):
    """On the command line each of these has the prefix `--marin-drmaa-`."""

    cluster = "slurm-drmaa"

    args: str = field(
        default="",
        metadata=option(
            "Further options for every job, in the syntax of slurm-drmaa (for instance --reservation=NAME); they"
            " replace those that are made from resources."
        ),
    )

    def job_resources(self) -> Mapping[str, Any]:
        return {"drmaa_args": self.args}
