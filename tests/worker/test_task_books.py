"""The books of a task and of a step, and how their worker takes them up: what is done, held, damaged, lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.prepare import PlanSettings, prepare
from marin_rules.state.status import Status, status_path
from marin_rules.state.task_records import Layout, TaskPlace, TaskRecord, TasksChangedError, layout_path, read_layout
from marin_rules.storage.files import read_bytes, write_atomic
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import LeaseRecord
from marin_rules.worker.conclusion import Conclusion
from marin_rules.worker.gpu_slots import GpuSlots
from marin_rules.worker.step_books import StepBooks
from marin_rules.worker.step_call import Outcome
from marin_rules.worker.take_up import HeldError, TakeUp
from marin_rules.worker.task_books import TaskBooks
from support.lease_models.clock import elsewhere
from support.small_plans import leave_status, plan_of, step

STORES = ["local", pytest.param("gcs", marks=pytest.mark.processes), pytest.param("s3", marks=pytest.mark.processes)]
FACTS = {
    "id": "run-1",
    "worker_id": "w",
    "git_commit": "abc",
    "seconds": 1.5,
    "slurm": {"job_id": "7_1", "nodes": "n1"},
}


def at_once[Result](action: Callable[[], Result]) -> Result:
    return action()


@dataclass
class Task:
    """Task 1 of a step of three."""

    plan: FrozenPlan
    said: list[str] = field(default_factory=list)

    @property
    def place(self) -> TaskPlace:
        return TaskPlace(self.plan.steps[0].output_path, 1, 1)

    def books(self, owner: Owner | None = None) -> TaskBooks:
        owner = owner or Owner.current()
        return TaskBooks(self.plan, self.plan.steps[0], self.place, owner, label="task 1", patiently=at_once)

    def take_up(
        self, books: TaskBooks, *, waits: bool = True, sleep: Callable[[float], None] = lambda _: None
    ) -> TakeUp:
        return TakeUp(books, GpuSlots(0, "task"), say=self.said.append, sleep=sleep, waits=waits)

    def leave(self, data: bytes) -> None:
        write_atomic(self.place.record_path, data)

    def record(self) -> dict[str, Any]:
        found = json.loads(read_bytes(self.place.record_path) or b"{}")
        assert isinstance(found, dict)
        return found


@pytest.fixture(params=STORES)
def task(request: pytest.FixtureRequest, tmp_path: Path) -> Task:
    """On each kind of store in turn."""
    prefix = str(tmp_path / "out")
    if request.param != "local":
        request.getfixturevalue(f"{request.param}_here")
        prefix = f"{ {'gcs': 'gs', 's3': 's3'}[request.param] }://bucket/out"
    return Task(prepare([step("many", tasks=3)], PlanSettings(prefix=prefix, caller_path=str(tmp_path / "x.py"))))


@pytest.fixture
def here(tmp_path: Path) -> Task:
    return Task(plan_of(tmp_path, step("many", tasks=3)))


def finish(books: TaskBooks, conclusion: Conclusion) -> None:
    books.begin(dict(FACTS))
    books.close(conclusion, books.lease.overwrite)


# --- tasks


def test_a_task_from_its_lease_to_its_record(task: Task) -> None:
    books = task.books()
    assert task.take_up(books).acquire()
    assert task.record()["status"] == "RUNNING"
    holder = task.place.holder()
    assert holder is not None
    assert holder.owner == books.lease.record.owner if books.lease.record else False
    finish(books, Conclusion(Status.SUCCESS, Outcome(artifact='{"rows": 3}')))
    task.take_up(books).release()
    record = task.record()
    assert record.pop("token")
    assert record == {
        **{"status": "SUCCESS", "attempt": 1, "run": "run-1", "worker_id": "w", "seconds": 1.5},
        **{"slurm": {"job_id": "7_1", "nodes": "n1"}, "artifact": {"rows": 3}},
    }
    assert task.place.holder() is None


@pytest.mark.parametrize("word", [Status.FAILED, Status.CANCELLED])
def test_a_task_that_was_not_done_runs_again_and_is_counted(word: Status, task: Task) -> None:
    books = task.books()
    assert task.take_up(books).acquire()
    finish(books, Conclusion(word, Outcome(artifact="1", error="no")))
    books.lease.release()
    assert "artifact" not in task.record(), "only what is done has returned something"
    again = task.books()
    assert task.take_up(again).acquire()
    assert again.attempts == 1
    assert task.record()["attempt"] == 2


def test_a_task_that_is_done_is_left_as_it_is(task: Task) -> None:
    task.leave(TaskRecord(Status.SUCCESS, {"artifact": 5}).to_bytes())
    before = task.record()
    books = task.books()
    assert not task.take_up(books).acquire()
    assert books.record is not None
    assert books.record.fields["artifact"] == 5
    assert task.record() == before
    assert task.place.holder() is None


def test_a_task_of_a_round_that_is_over_is_not_begun(task: Task) -> None:
    """Seen with the lease in hand: another round may have begun while the worker waited for it."""
    owner = Owner.current()
    books = TaskBooks(
        task.plan, task.plan.steps[0], task.place, owner, label="", patiently=at_once, is_over=lambda: True
    )
    assert books.lease.try_acquire() is None
    assert not books.take(waited=False)
    assert task.place.read() is None


@pytest.mark.parametrize("damage", [b"", b"garbage", b'{"status": "SUCC'])
def test_a_damaged_record_says_nothing(damage: bytes, task: Task) -> None:
    task.leave(damage)
    assert task.take_up(task.books()).acquire()
    assert task.record()["status"] == "RUNNING"


def test_a_task_that_somebody_has_is_not_waited_for_by_one_who_does_not_wait(task: Task) -> None:
    assert task.place.open_lease(elsewhere("node7")).try_acquire() is None
    with pytest.raises(HeldError, match="held by node7-7-abcd"):
        task.take_up(task.books(), waits=False).acquire()


@pytest.mark.parametrize("word", ["SUCCESS", "FAILED", "CANCELLED"])
def test_what_the_one_who_was_waited_for_leaves_is_accepted(word: str, here: Task) -> None:
    other = here.place.open_lease(elsewhere("node7"))
    assert other.try_acquire() is None

    def end(seconds: float) -> None:
        other.overwrite(here.place.record_path, json.dumps({"status": word, "error": "ValueError: no"}).encode())
        other.release()

    taking = here.take_up(here.books(), sleep=end)
    if word == "FAILED":
        with pytest.raises(MarinRulesError, match=r"task 1 failed in the other run that had it \(ValueError: no\)"):
            taking.acquire()
        assert here.place.holder() is None
    else:
        assert taking.acquire() is (word == "CANCELLED"), "it was stopped: somebody has to do it"
    assert here.said[0].startswith("waiting: held by node7-7-abcd")


def test_one_who_lost_the_lease_leaves_no_record(task: Task) -> None:
    late = task.books()
    assert task.take_up(late).acquire()
    write_atomic(task.place.lease_path, LeaseRecord.first(elsewhere("node7"), epoch=2, now=0.0).to_bytes())
    before = task.record()
    with pytest.raises(LeaseLostError):
        finish(late, Conclusion(Status.SUCCESS, Outcome()))
    assert task.record() == before
    late.lease.release()
    holder = task.place.holder()
    assert holder is not None
    assert holder.worker_id == "node7-7-abcd"


def test_a_late_record_comes_before_the_successor_s_word_or_not_at_all(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an object store a worker that lost its lease may be about to write. Its successor then finds the task done."""
    commit = Lease.commit

    def late(lease: Lease, path: str, data: bytes, *, durable: bool = True) -> None:
        monkeypatch.setattr(Lease, "commit", commit)
        if "://" in path:
            task.leave(TaskRecord(Status.SUCCESS, {"worker_id": "late"}).to_bytes())
        commit(lease, path, data, durable=durable)

    monkeypatch.setattr(Lease, "commit", late)
    is_taken = task.take_up(task.books()).acquire()
    assert is_taken is ("://" not in task.place.record_path)
    if not is_taken:
        assert task.record()["worker_id"] == "late"


# --- steps


@pytest.fixture
def take(tmp_path: Path) -> Callable[..., StepBooks]:
    """`take(tasks, forced=, status=)`: the step of a new run with so many tasks, taken up."""

    def take_step(tasks: int | None, *, forced: bool = False, status: Status | None = None) -> StepBooks:
        plan = plan_of(tmp_path, step("many", tasks=tasks))
        if forced:
            plan.forced = plan.anew = (0,)
        if status is not None:
            leave_status(plan.steps[0], status)
        books = StepBooks(plan, plan.steps[0], Owner.current(), in_job=False, patiently=at_once)
        taking = TakeUp(books, GpuSlots(0, "step"), say=lambda text: None, sleep=lambda seconds: None)
        try:
            assert taking.acquire()
        finally:
            books.lease.release()
        return books

    return take_step


@pytest.mark.parametrize(
    ("status", "forced", "is_new", "noted"),
    [
        (Status.SUCCESS, True, False, "done"),
        (None, False, False, "done"),  # Somebody has removed the status.
        (Status.FAILED, True, False, "half done"),
        (Status.RUNNING, True, False, "half done"),
        (Status.FAILED, False, False, None),
        (Status.RUNNING, False, False, None),  # Killed, perhaps just before SUCCESS: it goes on.
        (Status.CANCELLED, False, False, None),
        (None, False, True, None),
        (None, True, True, None),
    ],
)
def test_a_step_that_is_begun_anew_is_told(
    status: Status | None,
    forced: bool,
    is_new: bool,
    noted: str | None,
    take: Callable[..., StepBooks],
    tmp_path: Path,
) -> None:
    folder = Path(plan_of(tmp_path, step("many")).steps[0].output_path)
    if not is_new:
        write_atomic(f"{folder}/.executor_info", b'{"run": {"id": "another"}}')
        write_atomic(f"{folder}/.artifact.json", b"{}")
    note = folder / ".executor_again"

    def taken(*, forced: bool, status: Status | None) -> Any:
        take(None, forced=forced, status=status)
        return json.loads(note.read_text()) if note.exists() else None

    found = taken(forced=forced, status=status)
    assert (found is not None) == (noted is not None)
    if found is None:
        return
    assert found["after_done"] == (found["id"] if noted == "done" else None)
    once_more = taken(forced=True, status=Status.SUCCESS)
    assert found["id"] != once_more["id"] == once_more["after_done"]
    killed = taken(forced=True, status=Status.RUNNING)
    assert killed["id"] != once_more["id"] == killed["after_done"], "it may have been killed before it knew"
    note.write_text("damaged")
    assert taken(forced=True, status=Status.RUNNING)["after_done"] is None


def test_a_step_whose_status_was_lost_half_way_is_not_taken_for_done(
    take: Callable[..., StepBooks], tmp_path: Path
) -> None:
    """A power cut can leave an empty one, and our message says to delete it."""
    folder = plan_of(tmp_path, step("many")).steps[0].output_path
    write_atomic(f"{folder}/.executor_info", b'{"run": {"id": "another"}}')
    take(None)
    assert json.loads(Path(folder, ".executor_again").read_text())["after_done"] is None


@pytest.mark.parametrize(
    ("end", "was_done"),
    [({}, False), ({"finished": "later", "error": "stopped by SIGTERM"}, False), ({"finished": "later"}, True)],
    ids=["killed", "stopped", "done"],
)
def test_a_step_whose_status_was_lost_is_as_done_as_its_last_attempt(
    end: dict[str, str], was_done: bool, take: Callable[..., StepBooks], tmp_path: Path
) -> None:
    """It was done once, and was then forced: the artifact is of that time."""
    folder = plan_of(tmp_path, step("many")).steps[0].output_path
    info = {"run": {"id": "another", "started": "once", **end}}
    write_atomic(f"{folder}/.executor_info", json.dumps(info).encode())
    write_atomic(f"{folder}/.artifact.json", b"{}")
    take(None)
    note = json.loads(Path(folder, ".executor_again").read_text())
    assert note["after_done"] == (note["id"] if was_done else None)


@pytest.mark.parametrize(
    ("before", "status", "tasks", "forced", "expected"),
    [
        ((3, 1), Status.RUNNING, 3, False, Layout(3, 1)),
        ((3, 1), Status.FAILED, 3, False, Layout(3, 1)),
        ((3, 1), Status.CANCELLED, 3, False, Layout(3, 1)),
        ((3, 1), Status.FAILED, 3, True, Layout(3, 2)),
        ((3, 1), Status.SUCCESS, 3, True, Layout(3, 2)),
        ((3, 1), Status.SUCCESS, 5, True, Layout(5, 2)),
        ((3, 1), Status.SUCCESS, None, True, Layout(3, 2)),
        ((3, 1), None, 3, False, Layout(3, 2)),
        ((3, 1), Status.FAILED, 5, False, TasksChangedError),
        ((3, 1), Status.FAILED, None, False, TasksChangedError),
        (None, Status.FAILED, 3, False, Layout(3, 1)),
        (None, Status.SUCCESS, 3, True, Layout(3, 1)),
        (None, None, None, False, None),
    ],
)
def test_which_round_a_step_is_taken_up_with(
    before: tuple[int, int] | None,
    status: Status | None,
    tasks: int | None,
    forced: bool,
    expected: Any,
    take: Callable[..., StepBooks],
    tmp_path: Path,
) -> None:
    """One of the tasks is done, and somebody has been there before."""
    path = plan_of(tmp_path, step("many")).steps[0].output_path
    if before is not None:
        write_atomic(layout_path(path), Layout(*before).to_bytes())
        write_atomic(TaskPlace(path, 1, 0).record_path, TaskRecord(Status.SUCCESS, {}).to_bytes())
        write_atomic(f"{path}/.executor_info", b'{"run": {"id": "another"}}')
    if isinstance(expected, type):
        with pytest.raises(expected):
            take(tasks, forced=forced, status=status)
        assert read_bytes(status_path(path)) == (status or "").encode()
        return
    books = take(tasks, forced=forced, status=status)
    assert read_layout(path) == expected
    if expected is not None and tasks is not None:
        assert books.round == expected.round
    assert books.status() is Status.RUNNING
