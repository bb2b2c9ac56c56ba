"""Stands in for the Slurm executor where Snakemake's Slurm plug-in is not installed."""

from __future__ import annotations

from typing import Any, NoReturn

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor


class Executor(RemoteExecutor):
    """Says what to install."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        raise WorkflowError(
            "the Slurm executor needs Snakemake's Slurm plug-in: install it with `pip install 'marin-rules[slurm]'`"
        )

    def run_job(self, job: Any) -> NoReturn:
        raise NotImplementedError

    def cancel_jobs(self, active_jobs: Any) -> NoReturn:
        raise NotImplementedError

    def check_active_jobs(self, active_jobs: Any) -> NoReturn:
        raise NotImplementedError
