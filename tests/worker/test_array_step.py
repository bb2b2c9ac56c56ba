"""An array step without a worker that has it as a whole: begun by a driver, ended by whoever sees that all is done."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin_rules.clusters.prices import Cost, recorded_cost
from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.prepare import PlanSettings, prepare
from marin_rules.state.info import info_path, read_info
from marin_rules.state.status import ARTIFACT_FILE, Status, read_status, status_path
from marin_rules.state.step_lease import open_lease, peek
from marin_rules.state.step_log import log_path
from marin_rules.state.task_records import Layout, TaskPlace, TaskRecord, layout_path, read_layout
from marin_rules.storage.files import read_bytes, write_atomic
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.record import LeaseRecord
from marin_rules.worker.array_step import Begun, begin_array, end_array, end_if_all_done, round_is_over
from marin_rules.worker.conclusion import Conclusion
from marin_rules.worker.step_call import Outcome
from support.active_world import dead_here
from support.lease_models.clock import elsewhere
from support.small_plans import step

STORES = ["local", pytest.param("gcs", marks=pytest.mark.processes), pytest.param("s3", marks=pytest.mark.processes)]
TASKS = 3
FAILURE = Conclusion(Status.FAILED, Outcome(error="1 of 3 tasks failed: task 1: ValueError: no"))


class World:
    """One array step, and what is stored of it."""

    def __init__(self, prefix: str, folder: Path) -> None:
        self._settings = PlanSettings(prefix=prefix, caller_path=str(folder / "x.py"))
        self.plan = self.new_run()
        self.said: list[str] = []

    def new_run(self) -> FrozenPlan:
        return prepare([step("many", tasks=TASKS)], self._settings)

    @property
    def step(self) -> FrozenStep:
        return self.plan.steps[0]

    @property
    def path(self) -> str:
        return self.step.output_path

    def begin(self) -> int:
        begun = begin_array(self.plan, self.step)
        assert isinstance(begun, Begun)
        return begun.round

    def do(self, *tasks: int, number: int = 1, status: Status = Status.SUCCESS) -> None:
        """Leave records as the workers of these tasks would."""
        for task in tasks:
            record = TaskRecord(status, {"artifact": {"task": task}} if status is Status.SUCCESS else {})
            write_atomic(TaskPlace(self.path, number, task).record_path, record.to_bytes())

    def end(self, conclusion: Conclusion, number: int = 1, **options: Any) -> bool:
        return end_array(self.plan, self.step, number, conclusion, say=self.said.append, **options)

    def end_if_all_done(self, after: int, number: int = 1) -> bool:
        return end_if_all_done(self.plan, self.step, number, after=after, say=self.said.append)

    def status(self) -> Status | None:
        return read_status(self.path)

    def artifact(self) -> Any:
        data = read_bytes(os.path.join(self.path, ARTIFACT_FILE))
        return None if data is None else json.loads(data)

    def run_block(self) -> dict[str, Any]:
        info = read_info(self.path)
        assert info is not None
        run: dict[str, Any] = info["run"]
        return run

    def files(self) -> dict[str, bytes | None]:
        names = (status_path(self.path), info_path(self.path), os.path.join(self.path, ARTIFACT_FILE))
        return {name: read_bytes(name) for name in (*names, log_path(self.path), layout_path(self.path))}

    def take_lease(self, owner: Any) -> Lease:
        lease = open_lease(self.path, owner)
        assert lease.try_acquire() is None
        return lease


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """On each kind of store in turn."""
    if request.param == "local":
        return World(str(tmp_path / "out"), tmp_path)
    request.getfixturevalue(f"{request.param}_here")
    return World(f"{ {'gcs': 'gs', 's3': 's3'}[request.param] }://bucket/out", tmp_path)


@pytest.fixture
def here(tmp_path: Path) -> World:
    return World(str(tmp_path / "out"), tmp_path)


# --- beginning


def test_a_step_is_begun_and_its_lease_given_back(world: World) -> None:
    assert world.begin() == 1
    assert world.status() is Status.RUNNING
    assert read_layout(world.path) == Layout(TASKS, 1)
    assert peek(world.path) is None
    run = world.run_block()
    assert (run["id"], run["tasks"], run["attempt"]) == (world.plan.run.id, TASKS, 1)


def test_a_step_that_was_begun_goes_on(world: World) -> None:
    world.begin()
    world.do(0)
    world.plan = world.new_run()
    assert world.begin() == 1
    assert world.run_block()["attempt"] == 2
    assert TaskPlace(world.path, 1, 0).read() is not None


def test_a_step_that_is_done_is_not_begun(world: World) -> None:
    world.begin()
    world.do(*range(TASKS))
    assert world.end_if_all_done(after=1)
    before = world.files()
    assert begin_array(world.plan, world.step) is None
    assert world.files() == before
    assert peek(world.path) is None


def test_what_its_tasks_came_to_is_written_down(here: World) -> None:
    here.begin()
    fields = {"seconds": 1800, "gcp": {"job_id": "7_0", "usd_an_hour": 2.0, "price_date": "2026-01-01"}}
    for task in range(TASKS):
        write_atomic(TaskPlace(here.path, 1, task).record_path, TaskRecord(Status.SUCCESS, fields).to_bytes())
    assert here.end_if_all_done(after=0)
    assert recorded_cost(here.run_block()) == Cost(3.0, "2026-01-01")


def test_a_step_that_is_done_is_begun_anew_if_that_is_asked_for(world: World) -> None:
    world.begin()
    world.do(*range(TASKS))
    world.end_if_all_done(after=1)
    world.plan = world.new_run()
    world.plan.forced = world.plan.anew = (0,)
    assert world.begin() == 2
    assert world.status() is Status.RUNNING
    assert round_is_over(world.step, 1)
    assert not round_is_over(world.step, 2)
    assert not world.end_if_all_done(after=0, number=1), "of a round that is over"
    assert world.status() is Status.RUNNING
    assert world.begin() == 2, "the same run begins it once"


def test_whoever_has_the_step_is_named(world: World) -> None:
    lease = world.take_lease(elsewhere("node7"))
    holder = begin_array(world.plan, world.step)
    assert isinstance(holder, LeaseRecord)
    assert holder.worker_id == lease.record.worker_id if lease.record else False
    assert world.status() is None


def test_the_last_word_of_a_predecessor_in_the_very_moment_of_beginning(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an object store it may be written after its lease was taken over: then the step is done."""
    world.begin()
    commit = Lease.commit

    def late(lease: Lease, path: str, data: bytes, *, durable: bool = True) -> None:
        if path == status_path(world.path):
            monkeypatch.setattr(Lease, "commit", commit)
            if "://" in path:
                write_atomic(path, b"SUCCESS")
        commit(lease, path, data, durable=durable)

    monkeypatch.setattr(Lease, "commit", late)
    found = begin_array(world.plan, world.step)
    assert found == (None if "://" in world.path else Begun(1))
    assert peek(world.path) is None


# --- ending


@pytest.mark.parametrize("last", range(TASKS))
def test_a_step_is_ended_only_when_all_of_its_tasks_are_done(last: int, world: World) -> None:
    world.begin()
    before = world.files()
    world.do(*(task for task in range(TASKS) if task != last))
    for after in range(TASKS):
        assert not world.end_if_all_done(after)
    world.do(last, status=Status.FAILED)
    assert not world.end_if_all_done(after=last)
    assert world.files() == before

    world.do(last)
    assert world.end_if_all_done(after=last)
    assert world.status() is Status.SUCCESS
    assert world.artifact() == [{"task": task} for task in range(TASKS)]
    assert peek(world.path) is None
    run = world.run_block()
    assert run["id"] == world.plan.run.id
    assert run["seconds"] >= 0
    assert "error" not in run
    assert b"3 tasks, their logs are in .executor_tasks\n" in (read_bytes(log_path(world.path)) or b"")


def test_a_step_is_ended_once(world: World) -> None:
    world.begin()
    world.do(*range(TASKS))
    assert world.end_if_all_done(after=2)
    ended = world.files()
    for _ in range(2):
        assert world.end_if_all_done(after=2)
        assert world.end(FAILURE), "nor is anything else to be said"
    assert world.files() == ended
    assert read_bytes(status_path(world.path)) == b"SUCCESS"


def test_a_failure_is_written_down_and_undone_by_the_last_record(world: World) -> None:
    world.begin()
    world.do(0, 2)
    assert world.end(FAILURE)
    assert world.status() is Status.FAILED
    assert world.run_block()["error"] == FAILURE.outcome.error
    assert world.artifact() is None
    assert (FAILURE.outcome.error or "").encode() in (read_bytes(log_path(world.path)) or b"")
    world.do(1)  # Another driver had it, on another cluster.
    assert world.end_if_all_done(after=1)
    assert world.status() is Status.SUCCESS
    assert "error" not in world.run_block()


LATER = {"the next one": Layout(TASKS, 2), "one of another number": Layout(TASKS + 1, 1), "a removed one": None}


@pytest.mark.parametrize("layout", LATER.values(), ids=LATER)
def test_of_a_round_that_is_over_nothing_is_written(layout: Layout | None, here: World) -> None:
    here.begin()
    here.do(*range(TASKS))
    if layout is None:
        Path(layout_path(here.path)).unlink()
    else:
        write_atomic(layout_path(here.path), layout.to_bytes())
    before = here.files()
    assert not here.end_if_all_done(after=0)
    assert not here.end(FAILURE)
    assert here.files() == before
    assert peek(here.path) is None


def test_whoever_has_the_step_may_end_it(here: World) -> None:
    here.begin()
    lease = here.take_lease(elsewhere("node7"))

    def end_meanwhile(seconds: float) -> None:
        lease.overwrite(status_path(here.path), b"SUCCESS")

    assert here.end(FAILURE, sleep=end_meanwhile)
    assert here.status() is Status.SUCCESS
    assert peek(here.path) is not None, "it is still theirs"


def test_somebody_who_only_looked_is_waited_for(here: World) -> None:
    here.begin()
    here.do(*range(TASKS))
    lease = here.take_lease(elsewhere("node7"))
    assert here.end(FAILURE, sleep=lambda seconds: lease.release())
    assert here.status() is Status.FAILED


@pytest.mark.parametrize("lifetime", ["1", "90"])
def test_somebody_who_died_on_another_machine(lifetime: str, here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the lifetime of their lease to see it."""
    here.begin()
    monkeypatch.setenv("MARIN_LEASE_LIFETIME_SECONDS", lifetime)
    here.take_lease(elsewhere("node7") if lifetime == "1" else dead_here())
    assert here.end(FAILURE)
    assert here.status() is Status.FAILED


def test_somebody_who_goes_on_and_on_is_left_to_end_it(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_LEASE_LIFETIME_SECONDS", "1")
    here.begin()
    lease = here.take_lease(elsewhere("node7"))
    assert not here.end(FAILURE, sleep=lambda seconds: lease.refresh())
    assert here.status() is Status.RUNNING
    assert "another worker holds the step and will end it" in here.said[-1]


def test_one_who_lost_the_lease_meanwhile_leaves_the_word_to_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped for longer than its lease lives, right before the word that decides."""
    world.begin()
    commit = Lease.commit

    def late(lease: Lease, path: str, data: bytes, *, durable: bool = True) -> None:
        if path == status_path(world.path):
            monkeypatch.setattr(Lease, "commit", commit)
            write_atomic(lease.path, LeaseRecord.first(elsewhere("node7"), epoch=9, now=0.0).to_bytes())
        commit(lease, path, data, durable=durable)

    monkeypatch.setattr(Lease, "commit", late)
    assert not world.end(FAILURE)
    assert world.status() is Status.RUNNING
    holder = peek(world.path)
    assert holder is not None
    assert holder.worker_id.startswith("node7")


def test_a_damaged_info_stands_in_the_way_of_no_result(here: World) -> None:
    """What the driver wrote down is gone; what came of the tasks is not."""
    here.begin()
    here.do(*range(TASKS))
    write_atomic(info_path(here.path), b'{"run": {"started": "yesterday", "attempt": "x"}}')
    assert here.end_if_all_done(after=0)
    assert here.status() is Status.SUCCESS
    assert here.run_block()["seconds"] >= 0


def test_an_info_that_cannot_be_read_is_named(here: World) -> None:
    here.begin()
    here.do(*range(TASKS))
    write_atomic(info_path(here.path), b"{")
    with pytest.raises(MarinRulesError, match=r"executor_info is damaged"):
        here.end_if_all_done(after=0)
    assert here.status() is Status.RUNNING
    assert peek(here.path) is None


def test_the_last_worker_of_many_tasks_seldom_looks_at_more_than_one(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: a look is a request to the store."""
    looks: list[int] = []
    read: Callable[[TaskPlace], TaskRecord | None] = TaskPlace.read
    monkeypatch.setattr(TaskPlace, "read", lambda place: (looks.append(place.task), read(place))[1])
    here.begin()
    here.do(0)
    assert not here.end_if_all_done(after=0)
    assert looks == [1]
