"""The settings that all our executors for clusters have.

Snakemake makes options of them, with the name of the plug-in before them: `--marin-slurm-max-interruptions`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from marin_rules.engine import plan_in_process

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    # A job is given its variables. On its command line, values could be read by everyone.
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=0,
)


def option(help: str) -> dict[str, Any]:
    """What Snakemake needs to know about an option."""
    return {"help": help, "env_var": False, "required": False}


@dataclass
class ClusterSettings(ExecutorSettingsBase):
    """On the command line each of these has the name of the plug-in before it."""

    cluster: ClassVar[str]
    """What `clusters.open` knows the cluster by."""

    max_interruptions: int = field(
        default=20,
        metadata=option(
            "How often a step may lose its machine (preempted, node failed, time limit reached while it made progress)"
            " and be submitted again, without counting as a failure."
        ),
    )

    refusal_patience: int = field(
        default=300,
        metadata=option(
            "For how many seconds a job that the cluster refuses for an unknown reason is submitted again. One that is"
            " wrong in itself (no such partition, account or machine) fails at once."
        ),
    )

    requeue: bool = field(
        default=False,
        metadata=option("Let the cluster itself requeue a job whose machine was lost. This is the default."),
    )

    no_requeue: bool = field(
        default=False,
        metadata=option("Do not let the cluster itself requeue a job: the driver submits it again."),
    )

    logdir: str = field(
        default="",
        metadata=option("Where the jobs' own output goes, instead of a folder below .snakemake."),
    )

    keep_successful_logs: bool = field(
        default=False,
        metadata=option("Keep the output of jobs that succeeded, too: what a step prints is in its own log anyway."),
    )

    delete_logfiles_older_than: int = field(
        default=10,
        metadata=option("After how many days the output of jobs is deleted. With 0 it is never deleted."),
    )

    exclude_failed_nodes: str = field(
        default="",
        metadata=option("Machines that no job may use, separated by commas."),
    )

    def __post_init__(self) -> None:
        """Created only for the chosen executor, which a dry run cannot learn in any other way."""
        plan_in_process.chosen_cluster = self.cluster

    @property
    def excluded_nodes(self) -> tuple[str, ...]:
        return tuple(node for text in self.exclude_failed_nodes.split(",") if (node := text.strip()))

    def job_resources(self) -> Mapping[str, Any]:
        """What every job asks for by default."""
        return {}
