"""A plan judged by what is stored of its steps."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marin_rules import ExecutorStep
from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.assessment import Verdict
from marin_rules.state.info import VersionClashError, step_info
from marin_rules.state.status import Status, read_statuses
from marin_rules.state.step_lease import open_lease
from marin_rules.state.stored_states import assess_stored
from marin_rules.state.task_records import Layout, TaskPlace, TaskRecord, TasksChangedError, layout_path
from marin_rules.storage.files import write_atomic
from marin_rules.storage.leases.owner import Owner
from support.active_world import dead_here
from support.lease_models.clock import elsewhere
from support.small_plans import leave_status, plan_of, step


def judged(plan: FrozenPlan, *forced: int) -> tuple[Verdict, ...]:
    return assess_stored(plan, read_statuses([item.output_path for item in plan.steps]), forced).verdicts


def leave_info(plan: FrozenPlan, index: int = 0, **changes: Any) -> None:
    item = plan.steps[index]
    Path(item.output_path).mkdir(parents=True, exist_ok=True)
    Path(item.output_path, ".executor_info").write_text(json.dumps({**step_info(plan, item), **changes}))


@pytest.mark.parametrize(
    ("owner", "state", "reason"),
    [
        (None, "would run", "was running, but its worker is gone"),
        (dead_here(), "would run", "was running, but its worker is gone"),
        (Owner.current(), "running elsewhere", f"by {Owner.current().host}"),
        (elsewhere("node7"), "running elsewhere", "by node7"),
    ],
    ids=["nobody", "dead here", "alive here", "on another machine"],
)
def test_a_running_step_is_waited_for_while_somebody_may_have_it(
    owner: Owner | None, state: str, reason: str, tmp_path: Path
) -> None:
    plan = plan_of(tmp_path, step("a"))
    leave_status(plan.steps[0], Status.RUNNING)
    if owner is not None:
        assert open_lease(plan.steps[0].output_path, owner).try_acquire() is None
    (verdict,) = judged(plan)
    assert verdict.state == state
    assert verdict.reason.startswith(reason)


def test_when_a_step_failed(tmp_path: Path) -> None:
    """Its worker wrote it down; of one that did not, the status tells."""
    plan = plan_of(tmp_path, step("a"))
    leave_status(plan.steps[0], Status.FAILED)
    os.utime(Path(plan.steps[0].output_path, ".executor_status"), (86400.0, 86400.0))
    (verdict,) = judged(plan)
    assert "failed before at 1970-01-0" in verdict.reason
    leave_info(plan, run={"finished": "2031-02-03T04:05:06+00:00"})
    (verdict,) = judged(plan)
    assert verdict.reason == "failed before at 2031-02-03T04:05:06+00:00"


def test_a_done_step_runs_only_if_it_is_forced(tmp_path: Path) -> None:
    a = step("a")
    plan = plan_of(tmp_path, step("b", a))
    for item in plan.steps:
        leave_status(item, Status.SUCCESS)
    assert [verdict.state for verdict in judged(plan)] == ["cached", "cached"]
    assert [verdict.state for verdict in judged(plan, 1)] == ["cached", "would run"]


OVERRIDE = ExecutorStep("a", leave_info, {}, override_output_path="given")


@pytest.mark.parametrize("of", [step("a"), OVERRIDE], ids=["by chance", "override"])
@pytest.mark.parametrize("status", [Status.SUCCESS, Status.FAILED, Status.RUNNING])
def test_a_path_with_another_version_is_refused(of: ExecutorStep[Any], status: Status, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, of)
    leave_status(plan.steps[0], status)
    leave_info(plan)
    judged(plan)  # Its own.
    leave_info(plan, version_digest="0" * 32)
    with pytest.raises(VersionClashError, match="already holds another version"):
        judged(plan)


def test_what_was_never_begun_is_not_looked_at(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, step("a"))
    leave_info(plan, version_digest="0" * 32)
    assert [verdict.reason for verdict in judged(plan)] == ["new"]


def test_a_damaged_info_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, step("a"))
    leave_status(plan.steps[0], Status.SUCCESS)
    Path(plan.steps[0].output_path, ".executor_info").write_text("{")
    with pytest.raises(MarinRulesError, match=r"executor_info is damaged"):
        judged(plan)


def test_on_an_object_store_only_overrides_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is a request there, and two versions share a path of ours once in 16.8 million times."""
    plan = plan_of(tmp_path, step("a"), OVERRIDE)
    plan.steps = [replace(item, output_path=f"gs://bucket/{item.key}") for item in plan.steps]
    plan.steps[1] = replace(plan.steps[1], output_path="gs://bucket/given")
    asked: list[str] = []

    def read_many(paths: Any) -> dict[str, bytes | None]:
        asked.extend(paths)
        return {path: json.dumps({"version_digest": "0" * 32}).encode() for path in asked}

    monkeypatch.setattr("marin_rules.storage.bulk.read_many", read_many)
    with pytest.raises(VersionClashError, match="its override_output_path gs://bucket/given already holds"):
        assess_stored(plan, {item.output_path: Status.SUCCESS for item in plan.steps})
    assert asked == ["gs://bucket/given/.executor_info"]


# --- steps that are divided into tasks


def leave_tasks(item: FrozenStep, *words: Status, tasks: int = 3, holder: Owner | None = None) -> None:
    """A round of tasks whose first ones have these records; `holder` has the lease of the last of these."""
    write_atomic(layout_path(item.output_path), Layout(tasks, 2).to_bytes())
    for task, word in enumerate(words):
        place = TaskPlace(item.output_path, 2, task)
        write_atomic(place.record_path, TaskRecord(word, {}).to_bytes())
    if holder is not None:
        assert place.open_lease(holder).try_acquire() is None


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (Status.RUNNING, "was begun, but no task of it is running; 1 of 3 tasks are done"),
        (Status.CANCELLED, "was stopped before at .*; 1 of 3 tasks are done"),
        (Status.FAILED, "failed before at .*; 1 of 3 tasks are done"),
    ],
)
def test_how_many_tasks_are_done(status: Status, reason: str, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, step("a", tasks=3))
    leave_status(plan.steps[0], status)
    leave_tasks(plan.steps[0], Status.SUCCESS, Status.FAILED)
    (verdict,) = judged(plan)
    assert (verdict.state, verdict.anew) == ("would run", False)
    assert re.fullmatch(reason, verdict.reason)


def test_a_step_none_of_whose_tasks_is_done(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, step("a", tasks=3))
    leave_status(plan.steps[0], Status.RUNNING)
    leave_tasks(plan.steps[0], Status.FAILED)
    (verdict,) = judged(plan)
    assert verdict.reason == "was begun, but no task of it is running"


def test_what_was_done_does_not_count_for_a_step_that_is_asked_for_again(tmp_path: Path) -> None:
    a = step("a", tasks=3)
    plan = plan_of(tmp_path, step("b", a, tasks=3))
    leave_status(plan.steps[0], Status.SUCCESS)
    leave_status(plan.steps[1], Status.RUNNING)
    leave_tasks(plan.steps[1], Status.SUCCESS)
    for forced in (0, 1):
        *_, verdict = judged(plan, forced)
        assert verdict.anew, "asked for itself, or by way of what it depends on"
        assert "tasks are done" not in verdict.reason


@pytest.mark.parametrize(
    ("owner", "state"),
    [
        (None, "would run"),
        (dead_here(), "would run"),
        (Owner.current(), "running elsewhere"),
        (elsewhere("node7"), "running elsewhere"),
    ],
    ids=["nobody", "dead here", "alive here", "on another machine"],
)
def test_a_step_is_waited_for_while_somebody_has_one_of_its_tasks(
    owner: Owner | None, state: str, tmp_path: Path
) -> None:
    """Jobs of a cluster: nobody has the step as a whole while they run."""
    plan = plan_of(tmp_path, step("a", tasks=3))
    leave_status(plan.steps[0], Status.RUNNING)
    leave_tasks(plan.steps[0], Status.SUCCESS, Status.RUNNING, holder=owner)
    (verdict,) = judged(plan)
    assert verdict.state == state
    if owner is not None and state == "running elsewhere":
        assert verdict.reason.startswith(f"by {owner.worker_id} ")


@pytest.mark.parametrize("status", [Status.RUNNING, Status.FAILED, Status.CANCELLED])
@pytest.mark.parametrize("tasks", [16, None])
def test_another_number_of_tasks_is_refused_as_soon_as_somebody_looks(
    tasks: int | None, status: Status, tmp_path: Path
) -> None:
    plan = plan_of(tmp_path, step("a", tasks=tasks))
    leave_status(plan.steps[0], status)
    leave_tasks(plan.steps[0], Status.SUCCESS)
    with pytest.raises(TasksChangedError, match=r"step a was begun with tasks=3, of which 1 is done"):
        judged(plan)
    (verdict,) = judged(plan, 0)
    assert verdict.anew, "all is done again: nothing is mixed"


@pytest.mark.parametrize("status", [None, Status.SUCCESS])
def test_another_number_of_tasks_makes_no_difference_to_a_step_that_is_done_or_new(
    status: Status | None, tmp_path: Path
) -> None:
    plan = plan_of(tmp_path, step("a", tasks=16))
    if status is not None:
        leave_status(plan.steps[0], status)
    leave_tasks(plan.steps[0], Status.SUCCESS)
    (verdict,) = judged(plan)
    assert verdict.state == ("would run" if status is None else "cached")


def test_a_damaged_layout_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, step("a", tasks=3))
    leave_status(plan.steps[0], Status.FAILED)
    write_atomic(layout_path(plan.steps[0].output_path), b"{")
    with pytest.raises(MarinRulesError, match=r"layout\.json does not say into how many tasks"):
        judged(plan)
