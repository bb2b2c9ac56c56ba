"""What our executor plug-ins have in common: how jobs are run, and what is said if Snakemake's own is not installed."""

from dataclasses import dataclass, field
from typing import Any, NoReturn

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

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


@dataclass
class MissingSettings(ExecutorSettingsBase):
    """What the profile `slurm` sets, so that Snakemake gets as far as to say what is missing."""

    requeue: bool = field(default=False, metadata={"help": "needs the extra `slurm`"})
    max_interruptions: int = field(default=0, metadata={"help": "needs the extra `slurm`"})
    delete_logfiles_older_than: int = field(default=0, metadata={"help": "needs the extra `slurm`"})


def missing_executor(plugin: str, extra: str) -> type[RemoteExecutor]:
    """An executor that says what to install, and says so only when it is used: all are imported at each start."""

    class Executor(RemoteExecutor):
        def __init__(self, workflow: Any, logger: Any) -> None:
            raise WorkflowError(
                f"this executor needs Snakemake's {plugin} plug-in: install it with `pip install"
                f" 'marin-rules[{extra}]'`, or leave out the profile to run on this machine"
            )

        def run_job(self, job: Any) -> NoReturn:
            raise NotImplementedError

        def cancel_jobs(self, active_jobs: Any) -> NoReturn:
            raise NotImplementedError

        def check_active_jobs(self, active_jobs: Any) -> NoReturn:
            raise NotImplementedError

    return Executor
