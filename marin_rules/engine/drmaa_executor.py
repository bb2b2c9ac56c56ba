"""`--executor marin-drmaa`: jobs through slurm-drmaa. Snakemake's own DRMAA executor, told what each job asks for.

The stock executor has one line of options for all jobs, in which every resource named must be one that every job has.
Here the line is made for each job from the resources that it has. All else is the stock executor's work.
"""

from __future__ import annotations

import os
from typing import Any

from snakemake_executor_plugin_drmaa import Executor as StockExecutor  # type: ignore[import-not-found]

from marin_rules.engine import session as sessions
from marin_rules.engine.warm import WARM_VARIABLE
from marin_rules.execution.environment import in_this_environment
from marin_rules.slurm.native_options import native_options

_LOG_FOLDER = os.path.join(".snakemake", "slurm_logs")


class Executor(StockExecutor):  # type: ignore[misc]
    """Submits jobs, and watches over them."""

    def run_job(self, job: Any) -> None:
        os.makedirs(_LOG_FOLDER, exist_ok=True)
        log = os.path.join(_LOG_FOLDER, f"{job.name}-%j.log")
        options = native_options(job.resources, threads=job.threads, log=log)
        # The stock executor formats this line; nothing of ours is left to be filled in.
        options = options.replace("{", "{{").replace("}", "}}")
        self.drmaa_args = f"{options} {self.workflow.executor_settings.args}"
        with in_this_environment(sessions.current().environments_of(job)):
            super().run_job(job)

    def get_python_executable(self) -> str:
        """For jobs that run Snakemake: not with the working directory on its path, for files there are the user's."""
        return f"{super().get_python_executable()} -P"

    def get_job_exec_prefix(self, job: Any) -> str:
        """What a job's script does first. It has all of our environment, but must not leave its allocation for a
        warm worker beside us."""
        words = [f"unset {WARM_VARIABLE}", super().get_job_exec_prefix(job)]
        return " && ".join(word for word in words if word)
