"""Random schedules of machines and drivers at twelve tasks: each is recorded once, the step is done once, after all.

See `support.lease_models.array_world`. A failure names its seed.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from marin_rules.state.status import Status
from marin_rules.state.task_records import TaskRecord
from marin_rules.storage.leases.lease import Lease
from marin_rules.worker import array_step
from support.lease_models.array_world import ArrayWorld
from support.lease_models.oracle import Violation
from support.lease_models.replay import FENCED, NUMBERED, REPEATING, Kind

each_kind = pytest.mark.parametrize("kind", [FENCED, NUMBERED, REPEATING], ids=lambda kind: kind.name)


def play(kind: Kind, seeds: range, folder: Path) -> Counter[str]:
    counts = Counter[str]()
    for seed in seeds:
        world = ArrayWorld(kind, seed, folder)
        try:
            world.run()
        except BaseException as error:
            error.add_note(f"{kind.name}, seed {seed}: {dict(world.counts)}")
            raise
        counts += world.counts
        counts["turns"] += world.turns.turns
    return counts


def check_that_much_happened(counts: Counter[str], schedules: int) -> None:
    for event in ("takeovers", "Died", "task failed", "ended as failed"):
        assert counts[event] > schedules, (event, counts)
    for event in ("late changes", "LeaseLostError", "ended by a driver"):
        assert counts[event] > schedules / 4, (event, counts)


@each_kind
def test_some_schedules(kind: Kind, tmp_path: Path) -> None:
    check_that_much_happened(play(kind, range(10), tmp_path), 10)


@pytest.mark.faults
@each_kind
def test_two_hundred_schedules(kind: Kind, tmp_path: Path) -> None:
    counts = play(kind, range(1000, 1200), tmp_path)
    print(f"{kind.name}: {dict(counts)}")
    check_that_much_happened(counts, 200)


def all_are_done(output_path: str, number: int, tasks: Iterable[int]) -> dict[int, TaskRecord]:
    return {task: TaskRecord(Status.SUCCESS, {"artifact": {"task": task}}) for task in tasks}


@pytest.mark.parametrize(
    ("broken", "name", "replacement"),
    [
        pytest.param(array_step, "read_records", all_are_done, id="an end that does not look at all records"),
        pytest.param(array_step, "parse_status", lambda *_: Status.RUNNING, id="an end over an end"),
        pytest.param(Lease, "_is_stale", lambda *_: True, id="leases that anybody takes over"),
        pytest.param(TaskRecord, "is_done", False, id="tasks that are done again"),
    ],
)
def test_the_schedules_find(
    broken: Any, name: str, replacement: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broken, name, replacement)
    with pytest.raises(Violation):
        play(NUMBERED, range(20), tmp_path)
