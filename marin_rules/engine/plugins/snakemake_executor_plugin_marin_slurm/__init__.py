"""Found by Snakemake by its name: `--executor marin-slurm`. The executor is `marin_rules.engine.slurm_executor`."""

from marin_rules.engine.executor_plugins import MissingSettings, common_settings, missing_executor

try:
    from marin_rules.engine.slurm_executor import Executor
    from marin_rules.engine.slurm_settings import ExecutorSettings
except ModuleNotFoundError as error:
    if error.name != "snakemake_executor_plugin_slurm":
        raise
    Executor = missing_executor("Slurm", "slurm")  # type: ignore[assignment,misc]
    ExecutorSettings = MissingSettings  # type: ignore[assignment,misc]

__all__ = ["Executor", "ExecutorSettings", "common_settings"]
