"""Found by Snakemake by its name: `--executor marin-slurm`. The executor is `marin_rules.engine.cluster_executor`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from marin_rules.engine.cluster_executor import ClusterExecutor as Executor
from marin_rules.engine.cluster_settings import ClusterSettings, common_settings, option

__all__ = ["Executor", "ExecutorSettings", "common_settings"]


@dataclass
class ExecutorSettings(ClusterSettings):
    """On the command line each of these has the prefix `--marin-slurm-`."""

    cluster = "slurm"

    qos: str = field(default="", metadata=option("The quality of service for jobs that name none."))
    reservation: str = field(default="", metadata=option("The reservation for jobs that name none."))

    def job_resources(self) -> Mapping[str, Any]:
        return {"qos": self.qos, "reservation": self.reservation}
