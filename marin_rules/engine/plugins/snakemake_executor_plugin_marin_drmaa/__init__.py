"""Found by Snakemake by its name: `--executor marin-drmaa`. The executor is `marin_rules.engine.drmaa_executor`."""

from marin_rules.engine.drmaa_settings import ExecutorSettings
from marin_rules.engine.executor_plugins import common_settings, missing_executor

try:
    from marin_rules.engine.drmaa_executor import Executor
except ModuleNotFoundError as error:
    if error.name != "snakemake_executor_plugin_drmaa":
        raise
    Executor = missing_executor("DRMAA", "slurm-drmaa")  # type: ignore[assignment,misc]

__all__ = ["Executor", "ExecutorSettings", "common_settings"]
