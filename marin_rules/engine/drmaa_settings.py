"""The settings of the executor `marin-drmaa`."""

from dataclasses import dataclass, field

from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase

from marin_rules.engine import plan_in_process


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """On the command line each of these has the prefix `--marin-drmaa-`."""

    args: str = field(
        default="",
        metadata={
            "help": "Further options for every job, in the words of slurm-drmaa (for instance --reservation=NAME); they"
            " replace those that are made from resources.",
            "env_var": False,
            "required": False,
        },
    )

    def __post_init__(self) -> None:
        """Made for the chosen executor alone, which a dry run is not told otherwise."""
        plan_in_process.chose_slurm = True
