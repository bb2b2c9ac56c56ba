"""Snakemake's local executor, which hands steps to the run's warm workers instead of starting a shell for each.

The rules, what `-p` shows and what is logged are the same. A step goes the usual way, through its rule's shell command,
wherever that does more than ask a warm worker: in an environment of its own, with a hand-written rule, or when there
is no warm worker.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from snakemake.exceptions import SpawnedJobError
from snakemake.executors.local import Executor as LocalExecutor
from snakemake.executors.local import run_wrapper
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

from marin_rules.engine import plan_in_process
from marin_rules.engine.interrupts import INTERRUPTS
from marin_rules.worker.warm.dispatcher import Dispatcher


def use_warm_workers() -> None:
    """Run local jobs of this process with this executor. In all other respects it is Snakemake's own."""
    plugin: Any = ExecutorPluginRegistry().get_plugin("local")
    plugin.executor = Executor


class Executor(LocalExecutor):  # type: ignore[misc]
    """Runs local jobs, steps without a process of their own."""

    def run_single_job(self, job: Any) -> Future[None]:
        dispatcher = plan_in_process.current().dispatcher if plan_in_process.exists() else None
        arguments = None if dispatcher is None else self._arguments(job)
        if dispatcher is None or arguments is None:
            usual: Future[None] = super().run_single_job(job)
            return usual
        prepared = self.job_args_and_prepare(job)
        handed_over: Future[None] = self.pool.submit(self._hand_over, dispatcher, arguments, job, prepared)
        return handed_over

    def cancel(self) -> None:
        dispatcher = plan_in_process.current().dispatcher if plan_in_process.exists() else None
        if dispatcher is not None:
            dispatcher.stop_steps()
        super().cancel()

    def _arguments(self, job: Any) -> list[str] | None:
        """What the worker of a step is told; None for a job that is not just that."""
        in_process = plan_in_process.current()
        plan = in_process.plan
        step = plan.by_key.get(getattr(job.wildcards, "step", ""))
        if step is None or step.rule is not None or job.rule.name != in_process.rule(step):
            return None
        if step.software is not None or self.workflow.deployment_settings.deployment_method:
            return None
        what = ["--digest", plan.digest, "--plan", plan.run.plan_path, "--step", step.key]
        return [*what, f"--log={job.log}", f"--cores={job.threads}"]

    def _hand_over(self, dispatcher: Dispatcher, arguments: list[str], job: Any, prepared: tuple[Any, ...]) -> None:
        code = dispatcher.run(arguments)
        if code is None and not INTERRUPTS.came():
            self.cached_or_run(job, run_wrapper, *prepared)
        elif code != 0:
            raise SpawnedJobError  # The worker has said why.
