"""Logs: in pieces, from their ends, and followed until the step has ended."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from marin_rules.active import step_logs
from marin_rules.active.active_step import StepAddress
from marin_rules.active.lookup import find_steps
from marin_rules.active.step_logs import Log, follow, rank_log_path
from marin_rules.clusters.protocol import BusyError, JobState
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.state.run_registry import forget
from marin_rules.state.status import Status
from support.active_world import LIFETIME, ActiveWorld, dead_here, tag_of


@pytest.mark.parametrize(
    ("content", "lines", "expected"),
    [
        (b"", 3, b""),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\nc\n", 9, b"a\nb\nc\n"),
        (b"\n\n\n", 2, b"\n\n"),
        (b"no end", 1, b"no end"),
        (b"x" * 50 + b"\nlast\n", 1, b"last\n"),
    ],
)
@pytest.mark.parametrize("piece", [1, 4, 1 << 20])
def test_the_tail_of_a_log(
    content: bytes, lines: int, expected: bytes, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_logs, "_PIECE_BYTES", piece)
    (tmp_path / "log").write_bytes(content)
    log = Log(str(tmp_path / "log"), tail=lines)
    read = b"".join(log.news())
    while more := b"".join(log.news()):
        read += more
    assert read == expected


def test_a_log_is_read_from_where_it_was_left(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = Log(str(path))
    assert (log.exists, list(log.news())) == (False, [])
    path.write_bytes(b"one\n")
    assert (log.exists, b"".join(log.news())) == (True, b"one\n")
    with path.open("ab") as file:
        file.write(b"two\n")
    assert b"".join(log.news()) == b"two\n"
    assert list(log.news()) == []


def test_the_log_of_one_machine() -> None:
    assert rank_log_path("/p/a", None) == "/p/a/.executor_log"
    assert rank_log_path("/p/a", 3) == "/p/a/.executor_log.rank-3"


class Follower:
    """Follows the first step of a run. Whatever it waits for is planned before, on the clock of the world."""

    def __init__(self, world: ActiveWorld, plan: FrozenPlan) -> None:
        self.read = b""
        self._world = world
        self._path = Path(plan.steps[0].output_path)
        (self._step,) = find_steps(world.look(), str(self._path))

    def write(self, data: bytes) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        with (self._path / ".executor_log").open("ab") as file:
            file.write(data)

    def follow(self) -> float:
        """Returns after how many seconds the step was found to have ended."""
        began = self._world.clock.monotonic()
        log = Log(str(self._path / ".executor_log"))
        follow(self._step, log, self._take, self._world.queues, self._world.clock)
        return self._world.clock.monotonic() - began

    def _take(self, data: bytes) -> None:
        self.read += data


@pytest.fixture
def plan(world: ActiveWorld) -> FrozenPlan:
    return world.run("a")


def test_a_step_is_followed_to_its_success(world: ActiveWorld, plan: FrozenPlan) -> None:
    lease = world.work(plan.steps[0], run=plan.run.id)
    follower = Follower(world, plan)
    follower.write(b"one\n")
    world.clock.after(10, lambda: follower.write(b"two\n"))

    def end() -> None:
        follower.write(b"last\n")
        world.finish(lease, plan.steps[0], Status.SUCCESS)

    world.clock.after(20, end)
    assert follower.follow() == pytest.approx(20, abs=0.5)
    assert follower.read == b"one\ntwo\nlast\n"


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
def test_a_step_that_failed_in_this_run_has_ended(status: Status, world: ActiveWorld, plan: FrozenPlan) -> None:
    lease = world.work(plan.steps[0], run=plan.run.id)
    follower = Follower(world, plan)
    world.clock.after(10, lambda: world.finish(lease, plan.steps[0], status))
    assert follower.follow() == pytest.approx(10, abs=0.5)


def test_the_failure_of_an_earlier_run_is_no_end(world: ActiveWorld, plan: FrozenPlan) -> None:
    step = plan.steps[0]
    world.finish(world.work(step, run="earlier"), step, Status.FAILED)
    follower = Follower(world, plan)
    world.clock.after(30, lambda: world.finish(world.work(step, run=plan.run.id), step, Status.SUCCESS))
    assert follower.follow() == pytest.approx(30, abs=0.5)


def test_a_queued_job_is_waited_for_and_its_cluster_seldom_asked(world: ActiveWorld) -> None:
    plan = world.run("a", driver=dead_here())  # Nobody but the cluster cares for it.
    world.cloud.add("7", tag_of(plan, plan.steps[0]), JobState.WAITING)
    follower = Follower(world, plan)
    questions: list[float] = []
    ask = world.cloud.jobs
    world.cloud.jobs = lambda: (questions.append(world.clock.monotonic()), ask())[1]  # type: ignore[method-assign]
    world.clock.after(60, lambda: world.cloud.play("7"))
    assert 60 <= follower.follow() <= 66
    assert min(later - earlier for earlier, later in pairwise(questions)) >= 5


def test_a_cluster_that_falls_silent_has_the_job_still(world: ActiveWorld) -> None:
    plan = world.run("a", driver=dead_here())
    world.grid.add("7", tag_of(plan, plan.steps[0]))
    follower = Follower(world, plan)

    def silent(error: BusyError | None) -> Callable[[], None]:
        return lambda: setattr(world.grid, "error", error)

    world.clock.after(10, silent(BusyError("no answer")))
    world.clock.after(100, lambda: world.grid.play("7"))
    world.clock.after(200, silent(None))
    assert 200 <= follower.follow() <= 206


def test_a_worker_that_fell_silent_is_given_up_after_its_lifetime(world: ActiveWorld) -> None:
    plan = world.run("a", driver=dead_here())
    world.work(plan.steps[0], run=plan.run.id)
    assert LIFETIME <= Follower(world, plan).follow() <= LIFETIME + 1


def test_a_step_is_still_to_come_while_its_run_is_driven(world: ActiveWorld, plan: FrozenPlan) -> None:
    follower = Follower(world, plan)
    world.clock.after(500, lambda: forget(plan.run))
    assert follower.follow() == pytest.approx(500, abs=0.5)


def test_a_damaged_status_is_no_end(world: ActiveWorld, plan: FrozenPlan) -> None:
    follower = Follower(world, plan)
    follower.write(b"")
    (Path(plan.steps[0].output_path) / ".executor_status").write_text("?")
    world.clock.after(50, lambda: forget(plan.run))
    assert follower.follow() == pytest.approx(50, abs=0.5)


def test_a_step_that_nobody_wants_has_ended(world: ActiveWorld, tmp_path: Path) -> None:
    step = StepAddress("a", "a-123456", str(tmp_path / "a-123456"))
    follow(step, Log(str(tmp_path / "none")), lambda data: None, world.queues, world.clock)
    assert world.clock.monotonic() == 1000.0
