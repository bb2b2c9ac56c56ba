"""Found by Snakemake by its name: `--executor marin-slurm`. The executor is `marin_rules.engine.slurm_executor`."""

from snakemake_interface_executor_plugins.settings import CommonSettings

from marin_rules.engine.missing_plugin import missing_executor

try:
    from marin_rules.engine.slurm_executor import Executor
    from marin_rules.engine.slurm_settings import ExecutorSettings

    __all__ = ["Executor", "ExecutorSettings", "common_settings"]
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("snakemake_executor_plugin_slurm"):
        raise
    Executor = missing_executor("Slurm", "slurm")  # type: ignore[assignment,misc]

    __all__ = ["Executor", "common_settings"]

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=0,
)
