"""Stands in for the DRMAA executor where Snakemake's DRMAA plug-in is not installed."""

from __future__ import annotations

from typing import Any, NoReturn

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor


class Executor(RemoteExecutor):
    """Says what to install."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        raise WorkflowError(
            "the DRMAA executor needs Snakemake's DRMAA plug-in: install it with `pip install"
            " 'marin-rules[slurm-drmaa]'`, or use `--profile slurm`"
        )

    def run_job(self, job: Any) -> NoReturn:
        raise NotImplementedError

    def cancel_jobs(self, active_jobs: Any) -> NoReturn:
        raise NotImplementedError

    def check_active_jobs(self, active_jobs: Any) -> NoReturn:
        raise NotImplementedError
