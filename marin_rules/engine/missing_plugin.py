"""Stands in for an executor whose plug-in of Snakemake is not installed.

Snakemake imports every plug-in at each start: what is missing must be told only when it is used.
"""

from __future__ import annotations

from typing import Any, NoReturn

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor


def missing_executor(plugin: str, extra: str) -> type[RemoteExecutor]:
    """An executor that says what to install."""

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
