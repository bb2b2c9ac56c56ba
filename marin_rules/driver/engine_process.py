"""Hand a frozen plan to the engine and wait for it; turn what failed into exceptions.

The engine runs in a process of its own: it may be started from a notebook, a thread or a step, and its logging and
signal handlers stay separate. A signal that stops this process stops the engine first, which ends its jobs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from marin_rules.driver.dry_run import needs_engine, show
from marin_rules.driver.stop_signals import RunStopped, passed_on
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.plan_file import write_plan
from marin_rules.state.failures import Failure, PreviousTaskFailedError, read_failures
from marin_rules.storage.explain import StorageError
from marin_rules.storage.prefix import claim_prefix
from marin_rules.worker.standard_streams import open_standard_streams
from marin_rules.worker.variables import exported

ENGINE_MODULE = "marin_rules.engine"


class StepsFailedError(RuntimeError):
    """Some steps failed; the cause is the first of them."""


class EngineError(RuntimeError):
    """The run did not finish, and no step has reported why: see the engine's own messages."""


def run_in_engine(plan: FrozenPlan, *, dry_run: bool, max_concurrent: int | None = None) -> None:
    """Run a plan (or only show what a run would do), and raise what failed."""
    if dry_run and not needs_engine(plan):
        show(plan)
        return
    if dry_run:
        with tempfile.TemporaryDirectory(prefix="marin-rules-") as folder:
            path = os.path.join(folder, "plan")
            write_plan(plan, path)
            code = _engine(plan, path, "--dry-run")
    else:
        claim_prefix(plan.run.prefix)
        jobs = [] if max_concurrent is None else ["--jobs", str(max_concurrent)]
        with _plan_file(plan) as path:
            code = _engine(plan, path, *jobs)
    if code == 0:
        return
    failures = [] if dry_run else read_failures(plan)
    if not failures:
        raise EngineError(f"the run stopped with exit code {code}: see the messages above")
    cause = _step_error(failures[0])
    if all(failure.previous for failure in failures):
        raise PreviousTaskFailedError(f"{len(failures)} step(s) failed previously: {failures[0].message}") from cause
    raise StepsFailedError(f"{len(failures)} step(s) failed") from cause


@contextlib.contextmanager
def _plan_file(plan: FrozenPlan) -> Iterator[str]:
    """The plan as a file. If the prefix is read-only, it is put elsewhere: that is enough if everything is done.

    If something has to run after all, the engine says that the prefix cannot be written to.
    """
    with contextlib.ExitStack() as stack:
        path = plan.run.plan_path
        try:
            write_plan(plan, path)
        except StorageError:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="marin-rules-"))
            path = os.path.join(folder, "plan")
            write_plan(plan, path)
        yield path


def _step_error(failure: Failure) -> BaseException:
    error = RuntimeError(f"Step failed: {failure.name}")
    error.__cause__ = failure.original()
    return error


def _engine(plan: FrozenPlan, plan_path: str, *arguments: str) -> int:
    command = [sys.executable, "-P", "-m", ENGINE_MODULE]
    command += ["--parent", str(os.getpid()), "--digest", plan.digest, "--plan", plan_path, *arguments]
    variables = {**os.environ, **exported(plan.variables)}
    open_standard_streams()
    with subprocess.Popen(command, env=variables) as process, passed_on(process) as signals:
        while True:
            try:
                code = process.wait()
                break
            except KeyboardInterrupt:  # From a handler of the program's own.
                signals.append(signal.SIGINT)
                process.send_signal(signal.SIGTERM)
    if signals and code != 0:
        raise RunStopped(signals[0])
    return code
