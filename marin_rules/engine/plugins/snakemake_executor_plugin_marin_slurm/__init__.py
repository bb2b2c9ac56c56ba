"""Found by Snakemake by its name: `--executor marin-slurm`. The executor is `marin_rules.engine.slurm_executor`."""

from marin_rules.engine.executor_plugins import common_settings, missing_executor

__all__ = ["Executor", "common_settings"]

try:
    from marin_rules.engine.slurm_executor import Executor
    from marin_rules.engine.slurm_settings import ExecutorSettings  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "snakemake_executor_plugin_slurm":
        raise
    Executor = missing_executor("Slurm", "slurm")  # type: ignore[assignment,misc]
