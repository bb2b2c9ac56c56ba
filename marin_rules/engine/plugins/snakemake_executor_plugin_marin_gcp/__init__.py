"""Found by Snakemake by its name: `--executor marin-gcp`. The executor is `marin_rules.engine.cluster_executor`."""

from dataclasses import dataclass

from marin_rules.engine.cluster_executor import ClusterExecutor as Executor
from marin_rules.engine.cluster_settings import ClusterSettings, common_settings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]


@dataclass
class ExecutorSettings(ClusterSettings):
    """On the command line each of these has the prefix `--marin-gcp-`."""

    cluster = "gcp"
