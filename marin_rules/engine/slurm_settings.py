"""The settings of the executor `marin-slurm`: those of Snakemake's Slurm plug-in, and a few more."""

from dataclasses import dataclass, field

from snakemake_executor_plugin_slurm import ExecutorSettings as StockSettings

from marin_rules.engine import plan_in_process


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

    refusal_patience: int = field(
        default=300,
        metadata={
            "help": "For how many seconds a job that Slurm refuses for an unknown reason is submitted again. One that"
            " is wrong in itself (no such partition, account or machine) fails at once.",
            "env_var": False,
            "required": False,
        },
    )

    def __post_init__(self) -> None:
        """Made for the chosen executor alone, which a dry run is not told otherwise."""
        super().__post_init__()
        plan_in_process.chose_slurm = True
