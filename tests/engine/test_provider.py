"""What Snakemake's storage provider answers about the targets of steps."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from marin_rules.engine import plan_in_process
from marin_rules.engine.plan_in_process import PlanInProcess
from marin_rules.engine.provider import StorageObject, StorageProvider
from marin_rules.state.status import Status
from support.small_plans import leave_status, plan_of, step


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlanInProcess:
    monkeypatch.setattr(plan_in_process, "_current", None)
    monkeypatch.chdir(tmp_path)
    return plan_in_process.start(plan_of(tmp_path, step("data/a")))


def target(in_process: PlanInProcess) -> StorageObject:
    provider = StorageProvider(Path("storage"), logging.getLogger())
    return StorageObject(f"{in_process.plan.steps[0].key}#compute", False, True, provider)


@pytest.mark.parametrize("status", [None, *Status])
def test_a_target_exists_when_its_step_is_done(status: Status | None, in_process: PlanInProcess) -> None:
    if status is not None:
        leave_status(in_process.plan.steps[0], status)
    found = target(in_process)
    cache = SimpleNamespace(exists_in_storage={}, mtime={}, size={})
    asyncio.run(found.inventory(cache))  # type: ignore[arg-type]
    key = found.cache_key()
    is_done = status is Status.SUCCESS
    assert found.exists() == is_done
    assert cache.exists_in_storage == {key: is_done}
    assert {name: mtime.storage() for name, mtime in cache.mtime.items()} == ({key: 0.0} if is_done else {})
    assert cache.size == ({key: 0} if is_done else {})


def test_while_steps_run_their_ends_are_seen_and_stay(in_process: PlanInProcess) -> None:
    found = target(in_process)
    (planned,) = in_process.plan.steps
    assert not found.exists()
    leave_status(planned, Status.SUCCESS)
    assert not found.exists()  # All were read at once, when the run was planned.
    in_process.live = True
    assert found.exists()
    assert found.mtime() > 0.0
    leave_status(planned, Status.RUNNING)  # Somebody forces it, in another run.
    assert found.exists()


def test_a_target_of_another_experiment_does_not_exist(in_process: PlanInProcess) -> None:
    other = StorageObject("other-123456#compute", False, True, target(in_process).provider)
    assert not other.exists()


def test_data_never_pass_through_snakemake(in_process: PlanInProcess) -> None:
    (planned,) = in_process.plan.steps
    leave_status(planned, Status.FAILED)
    found = target(in_process)
    found.remove()
    found.store_object()
    found.cleanup()
    assert [path.name for path in Path(planned.output_path).iterdir()] == [".executor_status"]
    with pytest.raises(NotImplementedError, match="is a step"):
        found.retrieve_object()


def test_paths_of_targets_are_made_once_and_are_those_of_their_queries(in_process: PlanInProcess) -> None:
    found = target(in_process)
    assert found.local_path() == Path("storage") / found.query
    assert found.local_path() is found.local_path()


@pytest.mark.parametrize(
    ("query", "valid"), [("a-1#compute", True), ("a#b-1#compute", True), ("a-1", False), ("", False)]
)
def test_which_queries_are_targets(query: str, valid: bool) -> None:
    assert StorageProvider.is_valid_query(query).valid is valid
