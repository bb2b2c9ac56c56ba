"""The life of a run in one process: what is there before its first job, and what is left after its last one."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from marin_rules.driver import run_lifecycle
from marin_rules.driver.environments import SoftwareFolder
from marin_rules.driver.run_lifecycle import RunLifecycle
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.plan_file import read_plan
from marin_rules.state.assessment import Assessment, assess
from marin_rules.state.info import experiment_info_path, info_path
from marin_rules.state.run_presence import RunPresence
from marin_rules.state.status import Status, read_status, read_statuses
from marin_rules.state.step_lease import open_lease
from marin_rules.storage.leases.owner import Owner
from support.small_plans import leave_status, plan_of, step


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The registry of runs is this test's own, and the environment is as before afterwards."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    saved = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(saved)


def chain(folder: Path) -> FrozenPlan:
    a = step("a")
    b = step("b", a)
    return plan_of(folder, step("c", b), step("alone"))


def judged(plan: FrozenPlan, *forced: int) -> Assessment:
    statuses = read_statuses([item.output_path for item in plan.steps])
    return assess(plan, statuses, forced=forced, lease_of=lambda step: None, failed_at=lambda step: None)


def started(plan: FrozenPlan, *forced: int, warm: bool = False) -> RunLifecycle:
    lifecycle = RunLifecycle(plan, SoftwareFolder(plan, deploys_conda=False))
    statuses = read_statuses([item.output_path for item in plan.steps])
    if warm:
        lifecycle.warm_up()
    lifecycle.start(judged(plan, *forced), statuses)
    return lifecycle


def by_name(plan: FrozenPlan) -> dict[str, FrozenStep]:
    return {item.name: item for item in plan.steps}


def test_before_the_first_job_the_plan_and_the_experiment_are_written(tmp_path: Path) -> None:
    plan = chain(tmp_path)
    lifecycle = started(plan)
    assert read_plan(plan.run.plan_path, plan.digest).steps == plan.steps
    assert stat.S_IMODE(os.stat(plan.run.plan_path).st_mode) == 0o600
    assert os.path.exists(experiment_info_path(plan))
    lifecycle.finish(success=True)
    assert not os.path.exists(plan.run.directory), "nobody reads it any more"
    assert os.path.exists(experiment_info_path(plan)), "what was run is kept"


def test_what_is_done_and_scheduled_again_is_forced(tmp_path: Path) -> None:
    plan = chain(tmp_path)
    a, alone = (by_name(plan)[name] for name in ("a", "alone"))
    leave_status(a, Status.SUCCESS)
    leave_status(alone, Status.SUCCESS)
    lifecycle = started(plan, a.index)
    assert plan.forced == (a.index,), "b and c run anyway, and alone is not asked for again"
    assert read_plan(plan.run.plan_path, plan.digest).forced == (a.index,)
    lifecycle.finish(success=True)


def test_a_run_is_registered_as_long_as_it_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    monkeypatch.setattr(RunPresence, "begin", lambda self: events.append("begin"))
    monkeypatch.setattr(RunPresence, "end", lambda self, forgets: events.append("end" if forgets else "pause"))
    lifecycle = started(chain(tmp_path))
    assert events == ["begin"]
    lifecycle.finish(success=False)
    assert events == ["begin", "end"]
    started(chain(tmp_path)).finish(success=False, goes_on=True)
    assert events[2:] == ["begin", "pause"], "its jobs belong to it still"
    started(chain(tmp_path)).finish(success=True, goes_on=True)
    assert events[4:] == ["begin", "end"]


def test_what_an_earlier_driver_of_the_run_left_stopped_is_resumed(tmp_path: Path) -> None:
    plan = chain(tmp_path)
    a, alone = (by_name(plan)[name] for name in ("a", "alone"))
    for stopped, run in ((a, plan.run.id), (alone, "another")):
        leave_status(stopped, Status.CANCELLED)
        Path(info_path(stopped.output_path)).write_text(json.dumps({"run": {"id": run, "attempt": 2}}))
    lifecycle = started(plan)
    assert read_plan(plan.run.plan_path, plan.digest).resumed == {a.index: 2}
    lifecycle.finish(success=False, goes_on=True)


def test_what_could_not_run_is_marked(tmp_path: Path) -> None:
    plan = chain(tmp_path)
    lifecycle = started(plan)
    steps = by_name(plan)
    leave_status(steps["a"], Status.FAILED)
    leave_status(steps["alone"], Status.SUCCESS)
    lifecycle.finish(success=False)
    found = {name: read_status(item.output_path) for name, item in steps.items()}
    assert found == {
        "a": Status.FAILED,
        "b": Status.DEP_FAILED,
        "c": Status.DEP_FAILED,
        "alone": Status.SUCCESS,
    }
    assert os.path.exists(plan.run.plan_path), "for whoever looks into it"


def test_what_was_not_reached_is_not_marked(tmp_path: Path) -> None:
    plan = chain(tmp_path)
    lifecycle = started(plan)
    leave_status(by_name(plan)["a"], Status.SUCCESS)
    lifecycle.finish(success=False)  # Interrupted.
    assert read_status(by_name(plan)["b"].output_path) is None


def test_a_step_that_somebody_runs_is_left_alone(tmp_path: Path) -> None:
    plan = chain(tmp_path)
    lifecycle = started(plan)
    steps = by_name(plan)
    leave_status(steps["a"], Status.FAILED)
    os.makedirs(steps["b"].output_path)
    lease = open_lease(steps["b"].output_path, Owner.current())
    assert lease.try_acquire() is None
    try:
        lifecycle.finish(success=False)
        assert read_status(steps["b"].output_path) is None
    finally:
        lease.release()


def test_an_experiment_with_nothing_to_run_is_written_down_once(tmp_path: Path) -> None:
    plan = chain(tmp_path)
    lifecycle = RunLifecycle(plan, SoftwareFolder(plan, deploys_conda=False))
    lifecycle.nothing_to_run()
    path = Path(experiment_info_path(plan))
    assert path.is_file()
    path.write_text("as it was")
    lifecycle.nothing_to_run()
    assert path.read_text() == "as it was"
    assert not os.path.exists(plan.run.directory)


def test_environments_are_built_for_steps_that_use_our_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = chain(tmp_path)
    software = SoftwareFolder(plan, deploys_conda=False)
    built: list[str] = []
    monkeypatch.setattr(software, "ensure", lambda steps, say: built.extend(item.name for item in steps))
    lifecycle = RunLifecycle(plan, software)
    lifecycle.start(
        judged(plan), read_statuses([]) | dict.fromkeys(item.output_path for item in plan.steps),
        uses_our_files=lambda item: item.name != "b",
    )  # fmt: skip
    assert built == ["a", "c", "alone"]
    lifecycle.finish(success=True)


def test_a_run_whose_environment_cannot_be_built_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = chain(tmp_path)
    software = SoftwareFolder(plan, deploys_conda=False)

    def fail(steps: object, say: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(software, "ensure", fail)
    lifecycle = RunLifecycle(plan, software)
    with pytest.raises(OSError, match="no space left"):
        lifecycle.start(judged(plan), dict.fromkeys(item.output_path for item in plan.steps))
    assert not (tmp_path / "out").exists()


def test_workers_that_cannot_be_kept_warm_only_cost_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*details: object) -> None:
        raise OSError("no sockets here")

    monkeypatch.setattr(run_lifecycle, "WarmServer", refuse)
    lifecycle = started(chain(tmp_path), warm=True)
    assert "each step starts a Python of its own: no sockets here" in capsys.readouterr().err
    lifecycle.finish(success=True)


@pytest.mark.processes
def test_a_server_that_waits_for_a_plan_ends_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    plan = chain(tmp_path)
    lifecycle = RunLifecycle(plan, SoftwareFolder(plan, deploys_conda=False))
    lifecycle.warm_up()
    assert len(list(temporary.iterdir())) == 1
    lifecycle.finish(success=False)
    assert list(temporary.iterdir()) == []


def test_a_run_that_never_began_can_end(tmp_path: Path) -> None:
    plan = chain(tmp_path)
    RunLifecycle(plan, SoftwareFolder(plan, deploys_conda=False)).finish(success=False)
    assert not (tmp_path / "out").exists()
