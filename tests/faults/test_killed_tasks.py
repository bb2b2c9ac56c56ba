"""SIGKILL at every boundary of the I/O of an array step: where it begins, of its tasks, of the last one's commit.

Whatever is left behind, whoever comes next finishes the step: each task is recorded as done once, the step once, after
all of them. On a local disk a process dies before each change, on GCS and S3 before and after each call.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from support.faults.nursery import Nursery, Worker
from support.faults.places import Place
from support.faults.verdicts import assert_array_finished, assert_array_is_not_done_too_early

PLACES = ("local", "gcs", "s3")
MOST_BOUNDARIES = 200
TASKS = 2

type Attempt = Callable[[str, int | None], tuple[int, Worker]]
"""`attempt(step, fatal)`: what is killed at a boundary, and what is started again after that."""


def sweep(
    place: Place,
    nursery: Nursery,
    attempt: Attempt,
    *,
    first: int,
    stride: int,
    prepare: Callable[[str], None] = lambda step: None,
    finish: Callable[[str], None] = lambda step: None,
) -> int:
    """Kill an attempt at each boundary, and let the next one finish. Counts the kills."""
    for kills, fatal in enumerate(range(first, MOST_BOUNDARIES, stride)):
        step = f"blob/{fatal}"
        prepare(step)
        code, worker = attempt(step, fatal)
        at = f"killed at {worker.boundaries[-1]}:\n{worker.output}"
        assert code in (0, -signal.SIGKILL), at
        assert_array_is_not_done_too_early(place, nursery, step, TASKS)
        if code != 0:
            again, worker = attempt(step, None)
            assert again == 0, f"{at}\n{worker.output}"
            assert "waiting: held by" not in worker.output, at
        finish(step)
        assert_array_finished(place, nursery, step, TASKS)
        if code == 0:  # It had come to its end before that.
            return kills
    pytest.fail(f"there are more than {MOST_BOUNDARIES} boundaries")


class Sweeps:
    """What is killed."""

    def __init__(self, place: Place, nursery: Nursery) -> None:
        self._place, self._nursery = place, nursery

    def last_task(self, first: int, stride: int) -> int:
        """The element of a job array that does the last task, and ends the step."""

        def prepare(step: str) -> None:
            self.begin(step)
            self.do(step, 0)

        def attempt(step: str, fatal: int | None) -> tuple[int, Worker]:
            return self._nursery.run(step, task=1, fatal=fatal)

        return sweep(self._place, self._nursery, attempt, first=first, stride=stride, prepare=prepare)

    def beginning(self, first: int, stride: int) -> int:
        """The driver that begins the step."""

        def attempt(step: str, fatal: int | None) -> tuple[int, Worker]:
            return self._nursery.run(step, begins=True, fatal=fatal)

        def finish(step: str) -> None:
            for task in range(TASKS):
                self.do(step, task)

        return sweep(self._place, self._nursery, attempt, first=first, stride=stride, finish=finish)

    def whole_step(self, first: int, stride: int) -> int:
        """The worker of the step, with the pool and the workers of its tasks."""

        def attempt(step: str, fatal: int | None) -> tuple[int, Worker]:
            return self._nursery.run(step, fatal=fatal)

        return sweep(self._place, self._nursery, attempt, first=first, stride=stride)

    def begin(self, step: str) -> None:
        code, worker = self._nursery.run(step, begins=True)
        assert code == 0, worker.output

    def do(self, step: str, task: int) -> None:
        code, worker = self._nursery.run(step, task=task)
        assert code == 0, worker.output


@pytest.fixture
def make_sweeps(make_place: Callable[[str], Place], make_nursery: Callable[..., Nursery]) -> Callable[[str], Sweeps]:
    """`make_sweeps("local" | "gcs" | "s3")`."""

    def make(kind: str) -> Sweeps:
        place = make_place(kind)
        return Sweeps(place, make_nursery(place, MOST_BOUNDARIES, tasks=TASKS))

    return make


@pytest.mark.parametrize(("kind", "stride"), [("local", 9), ("gcs", 17)])
def test_some_boundaries_of_the_last_task(kind: str, stride: int, make_sweeps: Callable[[str], Sweeps]) -> None:
    assert make_sweeps(kind).last_task(first=3, stride=stride) >= 3


def test_some_boundaries_of_a_step_and_its_pool(make_sweeps: Callable[[str], Sweeps]) -> None:
    assert make_sweeps("local").whole_step(first=5, stride=13) >= 3


@pytest.mark.faults
@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("killed", [Sweeps.last_task, Sweeps.beginning, Sweeps.whole_step])
def test_every_boundary(
    killed: Callable[..., int], kind: str, make_sweeps: Callable[[str], Sweeps], tell: Callable[[str], None]
) -> None:
    kills = killed(make_sweeps(kind), first=1, stride=1)
    tell(f"{kind}: {kills} times {killed.__name__} killed, each at another boundary")
    assert kills >= 8
