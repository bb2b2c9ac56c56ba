"""Exceptions come back from workers as pickles: only from a folder that nobody else can write to."""

import base64
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.plan_file import write_plan
from marin_rules.plans.run import new_run
from marin_rules.state.failures import Failure, pickled, read_failures, record_failure
from marin_rules.steps import ExecutorStep
from marin_rules.worker.ranks import _report, write_report
from marin_rules.worker.step_call import Outcome
from support.emulators.gcs.emulator import GcsEmulator


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._path),)


def nothing(config: Any) -> None: ...


@pytest.fixture
def plan(tmp_path: Path) -> FrozenPlan:
    """A plan with one step, written where it belongs, by a user with a careless umask."""
    run = new_run(prefix=str(tmp_path), caller_path=__file__)
    plan = freeze(make_plan([ExecutorStep("a", nothing, {})], prefix=str(tmp_path)), run)
    before = os.umask(0)
    try:
        write_plan(plan, run.plan_path)
        exception = pickled(ValueError("mine"))
        record_failure(run, plan.steps[0], Failure("a", "out", "it failed", exception=exception))
        write_report(os.path.join(run.directory, "ranks", "x"), 0, Outcome(error="it failed", exception=exception))
    finally:
        os.umask(before)
    return plan


def test_an_exception_comes_back_as_it_was(plan: FrozenPlan) -> None:
    (failure,) = read_failures(plan)
    assert isinstance(failure.original(), ValueError)
    report = _report(plan.run, "ranks/x/0")
    assert report is not None
    assert report.exception == failure.exception


@pytest.mark.parametrize("how", ["a folder that everyone can write to", "a folder of somebody else's"])
def test_an_exception_that_somebody_else_can_have_written_is_not_unpickled(
    how: str, plan: FrozenPlan, tmp_path: Path
) -> None:
    trap = base64.b64encode(pickle.dumps(Trap(tmp_path / "sprung"))).decode()
    record_failure(plan.run, plan.steps[0], Failure("a", "out", "it failed", exception=trap))
    write_report(os.path.join(plan.run.directory, "ranks", "x"), 0, Outcome(error="it failed", exception=trap))
    if how == "a folder of somebody else's":
        if os.getuid() != 0:
            pytest.skip("only root can give a folder to somebody else")
        os.chown(plan.run.directory, 54321, 54321)
    else:
        os.chmod(plan.run.directory, 0o777)
    (failure,) = read_failures(plan)
    original = failure.original()
    assert (type(original), str(original)) == (RuntimeError, "it failed")
    report = _report(plan.run, "ranks/x/0")
    assert report is not None
    assert (report.error, report.exception) == ("it failed", None)
    assert not (tmp_path / "sprung").exists()


def test_nothing_in_a_bucket_is_unpickled(gcs_here: GcsEmulator, tmp_path: Path) -> None:
    """Whoever can write to a bucket could have put it there."""
    prefix = "gs://bucket/out"
    plan = freeze(
        make_plan([ExecutorStep("a", nothing, {})], prefix=prefix), new_run(prefix=prefix, caller_path="x.py")
    )
    trap = base64.b64encode(pickle.dumps(Trap(tmp_path / "sprung"))).decode()
    record_failure(plan.run, plan.steps[0], Failure("a", f"{prefix}/a", "boom", False, trap))
    [failure] = read_failures(plan)
    assert (failure.message, failure.exception) == ("boom", None)
    assert isinstance(failure.original(), RuntimeError)
    write_report(f"{plan.run.directory}/ranks/1", 0, Outcome(error="boom", exception=trap))
    report = _report(plan.run, "ranks/1/0")
    assert report is not None
    assert (report.error, report.exception) == ("boom", None)
    assert not (tmp_path / "sprung").exists()
