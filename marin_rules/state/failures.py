"""How steps failed: recorded by their workers, read by the driver that waits for them."""

from __future__ import annotations

import base64
import io
import json
import operator
import os
import pickle
import sys
from dataclasses import dataclass, replace
from typing import Any

from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.run import Run
from marin_rules.storage.files import write_atomic
from marin_rules.storage.private_files import read_within
from marin_rules.urls import is_url


class PreviousTaskFailedError(RuntimeError):
    """The step failed in an earlier run, and this run was told not to try it again."""


@dataclass(frozen=True)
class Failure:
    """How a step failed, as its worker reports it to the driver."""

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


def record_failure(run: Run, step: FrozenStep, failure: Failure) -> None:
    path = os.path.join(run.failures_directory, _file_name(step))
    write_atomic(path, json.dumps(failure.__dict__).encode(), mode=0o600)


def _file_name(step: FrozenStep) -> str:
    """The digest alone would not do: a StepSpec may be in a plan twice, in two places."""
    return f"{step.digest}-{step.index}"


def read_failures(plan: FrozenPlan) -> list[Failure]:
    """The failures of a run, in the order of its steps."""
    directory = plan.run.failures_directory
    if not is_url(directory) and not os.path.isdir(directory):
        return []
    names = [_file_name(step) for step in plan.steps if step.needed]
    if is_url(directory):
        from marin_rules.storage.bulk import read_many

        paths = [os.path.join(directory, name) for name in names]
        objects = read_many(paths)
        found = [(objects[path], False) for path in paths]
    else:
        folder = os.path.basename(directory)
        found = [read_within(plan.run.directory, os.path.join(folder, name)) for name in names]
    return [_parse(data, is_ours) for data, is_ours in found if data is not None]


def _parse(data: bytes, is_ours: bool) -> Failure:
    """A failure; from a folder or bucket that others can write to without the exception, which would be unpickled."""
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
    """An exception as text that another process can read, None if there is none."""
    buffer = io.BytesIO()
    try:
        _ExceptionPickler(buffer).dump(error)
    except Exception:
        return None
    return base64.b64encode(buffer.getvalue()).decode()
