"""Found by Snakemake by its name: `--executor marin-drmaa`. The executor is `marin_rules.engine.drmaa_executor`."""

from marin_rules.engine.drmaa_executor import Executor
from marin_rules.engine.drmaa_settings import ExecutorSettings
from marin_rules.engine.executor_plugins import common_settings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]
