"""What the Slurm job of a step executes, what it asks for, and the variables that it is given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from snakemake.deployment.conda import Conda
from snakemake_interface_executor_plugins.settings import DeploymentMethod, SharedFSUsage

from marin_rules.clusters.slurm.site import Queue
from marin_rules.plans.frozen import FrozenStep
from marin_rules.worker.variables import for_job_elsewhere, without_sets

_KEPT_OUT_OF_CONDA = ("R_LIBS", "PYTHONPATH", "PERLLIB", "PERL5LIB")
"""Variables that Snakemake hides from what runs in a conda environment."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""Variables by which Snakemake tells libraries how many cores a job has: they would take all that a node has."""


def job_command(executor: Any, job: Any, step: FrozenStep) -> str:
    """What the job executes: the step's worker, or the Snakemake that runs a hand-written rule."""
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


def job_resources(
    job: Any, queue: Queue, *, qos: str | None = None, reservation: str | None = None
) -> Mapping[str, Any]:
    """What the job asks for; where a hand-written rule says nothing, what the cluster's file says of `queue`."""
    fallback = {
        "slurm_partition": queue.partition,
        "slurm_account": queue.account,
        "qos": qos or queue.qos,
        "runtime": queue.runtime,
        "reservation": reservation,
    }
    given = {name: value for name, value in job.resources.items() if value is not None}
    return {
        "cpus_per_task": job.threads,
        **{name: value for name, value in fallback.items() if value},
        **given,
    }


def job_environment(cores: int, step: FrozenStep) -> dict[str, str]:
    """Ours, how many cores there are, if the user has not said it otherwise, and the variables of this step alone."""
    own = for_job_elsewhere([step.environment])
    return {**dict.fromkeys(THREADS, str(cores)), **without_sets(os.environ), **own}
