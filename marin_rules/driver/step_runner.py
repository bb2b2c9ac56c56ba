"""`StepRunner`: Marin's way to run StepSpecs. They are planned, leased and reported as all other steps are."""

from __future__ import annotations

from collections.abc import Iterable

from marin_rules.driver.main import ExecutorMainConfig, run_experiment
from marin_rules.plans.step_spec import StepSpec


class StepRunner:
    """Runs StepSpecs and what they depend on."""

    def run(
        self,
        steps: Iterable[StepSpec],
        *,
        dry_run: bool = False,
        force_run_failed: bool = True,
        max_concurrent: int | None = None,
    ) -> None:
        """Run `steps` and what they need; raises what `Executor.run` raises. The iterable is read to its end first."""
        config = ExecutorMainConfig(dry_run=dry_run, force_run_failed=force_run_failed)
        run_experiment(config, list(steps), max_concurrent=max_concurrent)
