"""What the user asked of Snakemake: the only place that reads the state of its workflow object.

Valid once the DAG is being built (input functions run then); while the Snakefile is parsed it is not known yet.
"""

from __future__ import annotations

from typing import Any

from marin_rules.errors import SettingsError


class Invocation:
    """A view of Snakemake's `workflow` object."""

    def __init__(self, workflow: Any) -> None:
        self._workflow = workflow

    @property
    def executes(self) -> bool:
        """A run or a dry run; False for reports, graphs, summaries, lints and the like."""
        return self._workflow.execution_settings is not None

    def check(self) -> None:
        """Snakemake takes any number of jobs, and runs something for a negative one."""
        settings = self._workflow.resource_settings
        for number in (settings.nodes, settings.cores):
            if isinstance(number, int) and number < 1:
                raise SettingsError(f"the number of jobs (-j, --cores) must be at least 1, not {number}")

    @property
    def dry_run(self) -> bool:
        return bool(self._workflow.dryrun)

    @property
    def runs_locally(self) -> bool:
        return bool(self._workflow.local_exec)

    @property
    def deploys_conda(self) -> bool:
        """Rules run in their conda environments (`--sdm conda`). Known from the beginning."""
        return any(method.name == "CONDA" for method in self._workflow.deployment_settings.deployment_method)

    @property
    def is_driver(self) -> bool:
        """False in a process that Snakemake started for one job."""
        return bool(self._workflow.is_main_process)

    @property
    def forces_all(self) -> bool:
        return bool(self._workflow.dag_settings.forceall)

    @property
    def forced_rules(self) -> frozenset[str]:
        """Rules named with -R/--forcerun."""
        settings = self._workflow.dag_settings
        return frozenset(str(name) for name in (settings.forcerun or ()))
