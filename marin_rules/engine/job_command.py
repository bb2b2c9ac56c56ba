"""What starts the step of one of Snakemake's jobs on a machine that has the driver's files."""

from __future__ import annotations

from typing import Any

from snakemake.deployment.conda import Conda
from snakemake_interface_executor_plugins.settings import DeploymentMethod, SharedFSUsage

from marin_rules.plans.frozen import FrozenStep

_KEPT_OUT_OF_CONDA = ("R_LIBS", "PYTHONPATH", "PERLLIB", "PERL5LIB")
"""Variables that Snakemake hides from what runs in a conda environment."""


def job_command(executor: Any, job: Any, step: FrozenStep) -> str:
    """The step's worker, in its conda environment if it has one, or the Snakemake that runs a hand-written rule."""
    workflow = executor.workflow
    methods = workflow.deployment_settings.deployment_method
    has_conda = job.conda_env is not None and DeploymentMethod.CONDA in methods
    is_made_there = SharedFSUsage.SOFTWARE_DEPLOYMENT not in workflow.storage_settings.shared_fs_usage
    if step.rule is not None or (has_conda and is_made_there):
        return str(executor.format_job_exec(job))
    if not has_conda:
        return str(job.shellcmd)
    conda = Conda(prefix_path=workflow.conda_base_path)
    return f"unset {' '.join(_KEPT_OUT_OF_CONDA)}\n{conda.shellcmd(job.conda_env.address, job.shellcmd)}"
