"""Found by Snakemake by its name: `--executor marin-drmaa`. The executor is `marin_rules.engine.drmaa_executor`."""

from snakemake_interface_executor_plugins.settings import CommonSettings

from marin_rules.engine.drmaa_settings import ExecutorSettings
from marin_rules.engine.missing_plugin import missing_executor

try:
    from marin_rules.engine.drmaa_executor import Executor
except ModuleNotFoundError as error:
    if error.name != "snakemake_executor_plugin_drmaa":
        raise
    Executor = missing_executor("DRMAA", "slurm-drmaa")  # type: ignore[assignment,misc]

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    # The whole environment travels with a job. On its command line, values could be read by everyone.
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=0,
)
