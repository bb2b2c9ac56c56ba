"""What is written down of the tasks of an array step, and when a round of them goes on, begins anew or is refused."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from marin_rules.errors import MarinRulesError
from marin_rules.state.status import Status
from marin_rules.state.step_lease import open_lease
from marin_rules.state.task_records import (
    HOPELESS_FAILURES,
    Layout,
    RoundsLeft,
    TaskCounts,
    TaskHeldError,
    TaskPlace,
    TaskRecord,
    TasksChangedError,
    begin_round,
    count_tasks,
    failures_in_words,
    is_hopeless,
    joined_artifacts,
    layout_path,
    read_layout,
    read_records,
)
from marin_rules.storage.files import read_bytes, write_atomic
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.owner import Owner
from support.active_world import dead_here
from support.lease_models.clock import elsewhere

STORES = ["local", pytest.param("gcs", marks=pytest.mark.processes), pytest.param("s3", marks=pytest.mark.processes)]


@pytest.fixture(params=STORES)
def output_path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The folder of a step, on each kind of store in turn."""
    if request.param == "local":
        return str(tmp_path / "step-123456")
    request.getfixturevalue(f"{request.param}_here")
    return f"{ {'gcs': 'gs', 's3': 's3'}[request.param] }://bucket/out/step-123456"


@pytest.fixture
def lease(output_path: str) -> Iterator[Lease]:
    """The lease of the step, in our hands."""
    held = open_lease(output_path, Owner.current())
    assert held.try_acquire() is None
    yield held
    held.release()


@pytest.fixture
def begin(lease: Lease, output_path: str) -> Callable[..., int]:
    """`begin(tasks, anew=False)` settles the round of the step."""

    left = RoundsLeft(Owner.current())

    def settle(tasks: int | None, *, anew: bool = False) -> int:
        return begin_round(lease, "clean", output_path, tasks, anew=anew, left=left)

    return settle


def leave(output_path: str, number: int, task: int, status: Status, holder: Owner | None = None) -> None:
    """Write the record of a task as its worker would; `holder`: who has its lease."""
    place = TaskPlace(output_path, number, task)
    write_atomic(place.record_path, TaskRecord(status, {}).to_bytes())
    if holder is not None:
        assert place.open_lease(holder).try_acquire() is None


# --- the layout


def test_a_layout_reads_as_it_was_written(output_path: str, begin: Callable[..., int]) -> None:
    assert read_layout(output_path) is None
    assert begin(64) == 1
    assert read_layout(output_path) == Layout(64, 1)
    assert json.loads(read_bytes(layout_path(output_path)) or b"") == {"tasks": 64, "round": 1}


DAMAGED = [b"", b"{", b"[64, 1]", b'{"tasks": 64}', b'{"tasks": "64", "round": 1}', b'{"tasks": 0, "round": 1}']
DAMAGED += [
    b'{"tasks": 1000000000000, "round": 1}',
    b'{"tasks": 64, "round": -1}',
    b'{"tasks": true, "round": 1}',
    b"\xff\x00",
    b"[" * 100_000,
]


@pytest.mark.parametrize("data", DAMAGED, ids=lambda data: repr(data[:30]))
def test_a_damaged_layout_is_no_answer(data: bytes, tmp_path: Path) -> None:
    folder = str(tmp_path / "step")
    write_atomic(layout_path(folder), data)
    with pytest.raises(MarinRulesError) as refusal:
        read_layout(folder)
    assert str(refusal.value).startswith(f"{layout_path(folder)} does not say into how many tasks its step is divided")
    assert f"Delete the step's folder {folder} " in str(refusal.value)


# --- records


@pytest.mark.parametrize("status", Status)
def test_a_record_reads_as_it_was_written(status: Status) -> None:
    fields = {"attempt": 3, "error": "ValueError: no", "artifact": {"rows": [1, None]}, "slurm": {"job_id": "5_1"}}
    record = TaskRecord(status, fields)
    assert TaskRecord.parse(record.to_bytes(), "7.json") == record
    assert record.is_done == (status is Status.SUCCESS)
    assert (record.attempt, record.error) == (3, "ValueError: no")


def test_two_records_of_the_same_differ_in_their_bytes() -> None:
    """On stores whose versions are hashes of the content, one attempt's RUNNING must not pass for another's."""
    record = TaskRecord(Status.RUNNING, {"attempt": 1})
    assert len({record.to_bytes() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "damage", [b"", b"\n", b'{"status": "SUCC', b"garbage", b"\xff\xfe", b'["SUCCESS"]', b"[" * 9999]
)
def test_a_damaged_record_is_that_of_a_task_to_be_run(damage: bytes, tmp_path: Path) -> None:
    place = TaskPlace(str(tmp_path), 1, 7)
    assert place.read() is None
    write_atomic(place.record_path, damage)
    assert place.read() is None
    assert read_records(str(tmp_path), 1, range(10)) == {}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"SUCCESS", TaskRecord(Status.SUCCESS, {})),
        (b'{"status": "RUNNING"}\n{"status": "SUCCESS", "attempt": 2}\n', TaskRecord(Status.SUCCESS, {"attempt": 2})),
        (
            b'{"status": "FAILED", "attempt": "x", "error": null}',
            TaskRecord(Status.FAILED, {"attempt": "x", "error": None}),
        ),
    ],
    ids=["a word", "a log of events", "odd fields"],
)
def test_a_record_that_somebody_wrote_by_hand(data: bytes, expected: TaskRecord, tmp_path: Path) -> None:
    place = TaskPlace(str(tmp_path), 1, 0)
    write_atomic(place.record_path, data)
    assert place.read() == read_records(str(tmp_path), 1, [0])[0] == expected
    assert expected.attempt in (0, 2)
    assert expected.error == ""


def test_many_records_at_once(output_path: str) -> None:
    for task in (0, 3, 4):
        leave(output_path, 2, task, Status.SUCCESS)
    leave(output_path, 2, 1, Status.FAILED)
    leave(output_path, 1, 2, Status.SUCCESS)  # Of another round.
    found = read_records(output_path, 2, range(1, 5))
    assert {task: record.status for task, record in found.items()} == {1: "FAILED", 3: "SUCCESS", 4: "SUCCESS"}


@pytest.mark.parametrize(
    ("owner", "is_seen"), [(Owner.current(), True), (elsewhere("node7"), True), (dead_here(), False), (None, False)]
)
def test_who_works_on_a_task(owner: Owner | None, is_seen: bool, tmp_path: Path) -> None:
    place = TaskPlace(str(tmp_path / "step"), 1, 0)
    if owner is not None:
        assert place.open_lease(owner).try_acquire() is None
    holder = place.holder()
    assert (None if holder is None else holder.owner) == (owner if is_seen else None)


def test_a_damaged_lease_of_a_task_is_nobody_s(tmp_path: Path) -> None:
    place = TaskPlace(str(tmp_path / "step"), 1, 0)
    write_atomic(place.lease_path, b'{"worker_id": "nod')
    assert place.holder() is None


# --- rounds


def test_a_round_goes_on(output_path: str, begin: Callable[..., int]) -> None:
    assert begin(3) == 1
    leave(output_path, 1, 0, Status.SUCCESS)
    leave(output_path, 1, 1, Status.RUNNING, Owner.current())
    assert begin(3) == 1
    assert len(read_records(output_path, 1, range(3))) == 2


@pytest.mark.parametrize("anew", [False, True])
def test_records_without_a_layout_are_nobody_s(output_path: str, begin: Callable[..., int], anew: bool) -> None:
    """Nobody knows of how many tasks they are: a task that removed the folder of tasks has taken the layout along."""
    leave(output_path, 1, 1, Status.SUCCESS)
    assert begin(3, anew=anew) == 1
    assert read_records(output_path, 1, range(3)) == {}


def test_a_step_that_is_done_anew_begins_the_next_round(output_path: str, begin: Callable[..., int]) -> None:
    begin(3)
    for task in range(3):
        leave(output_path, 1, task, Status.SUCCESS)
    assert begin(3, anew=True) == 2
    assert read_layout(output_path) == Layout(3, 2)
    assert read_records(output_path, 2, range(3)) == {}
    assert read_records(output_path, 1, range(3)) == {}, "what nobody reads any more is removed"


def test_a_round_that_nobody_has_begun_is_as_good_as_the_next_one(output_path: str, begin: Callable[..., int]) -> None:
    """Whoever began the step was killed before anything else happened."""
    assert begin(3) == 1
    assert begin(3, anew=True) == 1
    assert begin(4, anew=True) == 2
    assert read_layout(output_path) == Layout(4, 2)


def test_a_step_that_is_done_anew_may_have_another_number_of_tasks(output_path: str, begin: Callable[..., int]) -> None:
    """Nothing is mixed: all of them are done again."""
    begin(3)
    for task in range(3):
        leave(output_path, 1, task, Status.SUCCESS)
    assert begin(16, anew=True) == 2
    assert read_layout(output_path) == Layout(16, 2)


def test_another_number_begins_the_next_round_if_nothing_is_done(output_path: str, begin: Callable[..., int]) -> None:
    begin(3)
    leave(output_path, 1, 0, Status.FAILED)
    leave(output_path, 1, 1, Status.RUNNING, dead_here())
    assert begin(2) == 2
    assert read_layout(output_path) == Layout(2, 2)


@pytest.mark.parametrize(
    ("tasks", "now"), [(16, "has tasks=16 in this run"), (None, "is not divided into tasks in this run")]
)
def test_another_number_is_refused_if_a_task_is_done(
    tasks: int | None, now: str, output_path: str, begin: Callable[..., int]
) -> None:
    begin(40)
    for task in (7, 23):
        leave(output_path, 1, task, Status.SUCCESS)
    with pytest.raises(TasksChangedError) as refusal:
        begin(tasks)
    assert str(refusal.value) == (
        f"step clean was begun with tasks=40, of which 2 are done, and {now}: their results would be mixed. Set"
        f" tasks=40 to continue, or delete {output_path} to start over (see `marin-rules delete`)."
    )
    assert read_layout(output_path) == Layout(40, 1)
    assert len(read_records(output_path, 1, range(40))) == 2


@pytest.mark.parametrize("holder", [Owner.current(), elsewhere("node7")], ids=["here", "elsewhere"])
@pytest.mark.parametrize("tasks", [16, None])
def test_another_number_is_refused_while_a_task_is_at_work(
    holder: Owner, tasks: int | None, output_path: str, begin: Callable[..., int]
) -> None:
    begin(40)
    leave(output_path, 1, 7, Status.RUNNING, holder)
    with pytest.raises(TasksChangedError, match=f"task 7 is still run by {holder.worker_id} .*jobs stop {output_path}"):
        begin(tasks)
    assert read_layout(output_path) == Layout(40, 1)


@pytest.mark.parametrize("tasks", [40, 16, None])
def test_no_round_is_left_behind_while_a_task_is_at_work(
    tasks: int | None, output_path: str, begin: Callable[..., int]
) -> None:
    begin(40)
    for task in (3, 7):
        leave(output_path, 1, task, Status.RUNNING, dead_here() if task == 3 else elsewhere("node7"))
    with pytest.raises(TaskHeldError, match=r"task 7 held by node7-7-abcd \(pid 7 on node7") as held:
        begin(tasks, anew=True)
    assert held.value.holder.worker_id == elsewhere("node7").worker_id
    assert read_layout(output_path) == Layout(40, 1)
    assert TaskPlace(output_path, 1, 3).holder() is None, "what was taken of it is given back"


def test_a_round_is_left_behind_once_it_shows_that_its_worker_is_gone(
    output_path: str, begin: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(3)
    monkeypatch.setenv("MARIN_LEASE_LIFETIME_SECONDS", "1")
    leave(output_path, 1, 1, Status.RUNNING, elsewhere("node7"))
    began, looks = time.monotonic(), 0
    while read_layout(output_path) == Layout(3, 1):
        assert time.monotonic() < began + 30, "nobody refreshes its lease"
        with contextlib.suppress(TaskHeldError):
            begin(3, anew=True)
        looks += 1
        time.sleep(0.1)
    assert looks > 1
    assert read_layout(output_path) == Layout(3, 2)


def test_a_step_of_one_piece_leaves_no_round_that_could_be_taken_for_done(
    output_path: str, begin: Callable[..., int]
) -> None:
    begin(3)
    for task in range(3):
        leave(output_path, 1, task, Status.SUCCESS)
    begin(None, anew=True)  # Done again as one piece; perhaps it fails.
    assert begin(3) == 2
    assert read_records(output_path, 2, range(3)) == {}


def test_a_step_of_one_piece_was_never_divided(output_path: str, begin: Callable[..., int]) -> None:
    for anew in (False, True):
        assert begin(None, anew=anew) == 0
        assert read_layout(output_path) is None


def test_no_round_is_begun_without_the_lease(output_path: str, lease: Lease) -> None:
    leave(output_path, 1, 0, Status.SUCCESS)
    lease.release()
    with pytest.raises(LeaseLostError):
        begin_round(lease, "clean", output_path, 3, anew=False, left=RoundsLeft(Owner.current()))
    assert read_layout(output_path) is None
    assert TaskPlace(output_path, 1, 0).read() is not None, "nor is anything removed"


# --- for people


def test_counts() -> None:
    words = [Status.SUCCESS] * 41 + [Status.RUNNING] * 20 + [Status.FAILED] * 3 + [Status.CANCELLED]
    counts = count_tasks(70, (TaskRecord(status, {}) for status in words))
    assert counts == TaskCounts(70, done=41, running=20, failed=3)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (TaskCounts(64), "0/64"),
        (TaskCounts(64, 41, 20, 3), "41/64, 20 running, 3 failed"),
        (TaskCounts(64, 63, failed=1), "63/64, 1 failed"),
        (TaskCounts(1, running=1), "0/1, 1 running"),
    ],
)
def test_counts_in_words(counts: TaskCounts, words: str) -> None:
    assert str(counts) == words


@pytest.mark.parametrize(
    ("failed", "left", "words"),
    [
        ([17], 0, "1 of 64 tasks failed: task 17: error 17"),
        ([9, 2], 0, "2 of 64 tasks failed: task 2: error 2; also task 9"),
        ([9, 2, 30], 0, "3 of 64 tasks failed: task 2: error 2; also tasks 9, 30"),
        (
            range(20, 33),
            0,
            "13 of 64 tasks failed: task 20: error 20; also tasks 21, 22, 23, 24, 25, 26, 27, 28, 29, 30 and 2 more",
        ),
        ([0], 5, "1 of 64 tasks failed: task 0: error 0; 5 more were not tried, because everything before them failed"),
    ],
)
def test_failures_in_words(failed: Any, left: int, words: str) -> None:
    assert failures_in_words(64, {task: f"error {task}" for task in failed}, left) == words


@pytest.mark.parametrize(
    ("done", "failed", "expected"),
    [(0, 0, False), (0, HOPELESS_FAILURES - 1, False), (0, HOPELESS_FAILURES, True), (1, 1000, False)],
)
def test_when_the_rest_is_not_tried(done: int, failed: int, expected: bool) -> None:
    assert is_hopeless(done, failed) is expected


@pytest.mark.parametrize(
    ("returned", "expected"),
    [([None, None], None), ([1, None, {"a": []}], [1, None, {"a": []}]), ([0], [0]), ([False, None], [False, None])],
)
def test_what_an_array_step_returns(returned: list[Any], expected: Any) -> None:
    text = joined_artifacts(returned)
    assert (None if text is None else json.loads(text)) == expected
