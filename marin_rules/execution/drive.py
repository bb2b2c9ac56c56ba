"""Hand a frozen plan to the engine and wait for it; turn what failed into exceptions.

The engine runs in a process of its own: it may be started from a notebook, a thread or a step, its logging and
signal handlers stay apart. A signal that stops this process stops the engine first, which ends its jobs.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import operator
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from marin_rules.execution.environment import exported
from marin_rules.execution.frozen import FrozenPlan, Run
from marin_rules.execution.standard_streams import open_standard_streams
from marin_rules.execution.stop_signals import RunStopped, passed_on
from marin_rules.storage.explain import StorageError
from marin_rules.storage.files import is_url, write_atomic
from marin_rules.storage.ownership import read_within
from marin_rules.storage.prefix import claim_prefix

ENGINE_MODULE = "marin_rules.engine"


class PreviousTaskFailedError(RuntimeError):
    """The step failed in an earlier run, and this run was told not to try it again."""


class StepsFailedError(RuntimeError):
    """Some steps failed; the cause is the first of them."""


class EngineError(RuntimeError):
    """The run did not come to its end, and no step has reported why: the engine's own messages tell."""


@dataclass(frozen=True)
class Failure:
    """How a step failed, as its worker tells the driver."""

    name: str
    output_path: str
    message: str
    previous: bool = False
    """The step was refused because of a failure in an earlier run."""

    exception: str | None = None
    """The pickled exception in base64, where it could be pickled."""

    def original(self) -> BaseException:
        if self.previous:
            return PreviousTaskFailedError(self.message)
        try:
            found = pickle.loads(base64.b64decode(self.exception or ""))
        except Exception:
            found = None
        return found if isinstance(found, BaseException) else RuntimeError(self.message)


def record_failure(run: Run, digest: str, failure: Failure) -> None:
    write_atomic(os.path.join(run.failures_directory, digest), json.dumps(failure.__dict__).encode(), mode=0o600)


def read_failures(plan: FrozenPlan) -> list[Failure]:
    """The failures of a run, in the order of its steps."""
    directory = plan.run.failures_directory
    if not is_url(directory) and not os.path.isdir(directory):
        return []
    names = [step.digest for step in plan.steps if step.needed]
    if is_url(directory):
        from marin_rules.storage.bulk import read_many

        paths = [os.path.join(directory, name) for name in names]
        objects = read_many(paths)
        found = [(objects[path], True) for path in paths]
    else:
        folder = os.path.basename(directory)
        found = [read_within(plan.run.directory, os.path.join(folder, name)) for name in names]
    return [_parse(data, is_ours) for data, is_ours in found if data is not None]


def _parse(data: bytes, is_ours: bool) -> Failure:
    """A failure; from a folder that others can write to without the exception, which would be unpickled."""
    failure = Failure(**json.loads(data))
    return failure if is_ours else replace(failure, exception=None)


class _ExceptionPickler(pickle.Pickler):
    """Names classes of the experiment file, which is `__main__` for the driver alone, instead of looking them up."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type) and value.__module__ == "__main__":
            return _class_of_main, (value.__qualname__,)
        return NotImplemented


def _class_of_main(name: str) -> Any:
    return operator.attrgetter(name)(sys.modules["__main__"])


def pickled(error: BaseException) -> str | None:
    """An exception as text that travels, None if it cannot."""
    buffer = io.BytesIO()
    try:
        _ExceptionPickler(buffer).dump(error)
    except Exception:
        return None
    return base64.b64encode(buffer.getvalue()).decode()


def drive(plan: FrozenPlan, *, dry_run: bool, max_concurrent: int | None = None) -> None:
    """Run a plan (or only show it) through the engine, and raise what failed."""
    if dry_run:
        with tempfile.TemporaryDirectory(prefix="marin-rules-") as folder:
            path = os.path.join(folder, "plan")
            plan.write(path)
            code = _engine(plan, path, "--dry-run")
    else:
        claim_prefix(plan.run.prefix)
        jobs = [] if max_concurrent is None else ["--jobs", str(max_concurrent)]
        with _placed(plan) as path:
            code = _engine(plan, path, *jobs)
    if code == 0:
        return
    failures = [] if dry_run else read_failures(plan)
    if not failures:
        raise EngineError(f"the run stopped with exit code {code}: see the messages above")
    raise StepsFailedError(f"{len(failures)} step(s) failed") from _step_error(failures[0])


@contextlib.contextmanager
def _placed(plan: FrozenPlan) -> Iterator[str]:
    """The plan as a file. Who may only read the prefix has it elsewhere: that is enough if everything is done.

    If something has to run after all, the engine says that the prefix cannot be written to.
    """
    with contextlib.ExitStack() as stack:
        path = plan.run.plan_path
        try:
            plan.write(path)
        except StorageError:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="marin-rules-"))
            path = os.path.join(folder, "plan")
            plan.write(path)
        yield path


def _step_error(failure: Failure) -> BaseException:
    error = RuntimeError(f"Step failed: {failure.name}")
    error.__cause__ = failure.original()
    return error


def _engine(plan: FrozenPlan, plan_path: str, *arguments: str) -> int:
    command = [sys.executable, "-P", "-m", ENGINE_MODULE]
    command += ["--parent", str(os.getpid()), "--digest", plan.digest, "--plan", plan_path, *arguments]
    environment: dict[str, Any] = {**os.environ, **exported(plan.environments)}
    open_standard_streams()
    with subprocess.Popen(command, env=environment) as process, passed_on(process) as signals:
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
