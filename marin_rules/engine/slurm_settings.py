"""The settings of the executor `marin-slurm`: those of Snakemake's Slurm plug-in, and one more."""

from dataclasses import dataclass, field

from snakemake_executor_plugin_slurm import ExecutorSettings as StockSettings


@dataclass
class ExecutorSettings(StockSettings):  # type: ignore[misc]
    """On the command line each of these has the prefix `--marin-slurm-`."""

    max_interruptions: int = field(
        default=20,
        metadata={
            "help": "How often a step may lose its machine (preempted, node failed, time limit reached while it made"
            " progress) and be submitted again, without counting as a failure.",
            "env_var": False,
            "required": False,
        },
    )
