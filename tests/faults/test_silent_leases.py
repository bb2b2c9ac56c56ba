"""A lease that cannot be refreshed: its worker ends the step while nobody else can have it, whatever else it is doing.

Otherwise two steps could write the same data at once. Nothing is committed; the next worker finishes.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.faults.nursery import Nursery, Worker, with_step
from support.faults.places import INFO, Objects
from support.faults.verdicts import assert_finished
from support.lab import Lab

LIFETIME = 3.0
REFUSED = 75
GRACE = 5.0
"""What docs/leases.md gives a worker to end its step, and a busy machine needs it."""

KINDS = ["gcs", "s3"]


def has_ended(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}")


@pytest.fixture
def begin(
    tmp_path: Path, make_nursery: Callable[..., Nursery], lab: Lab
) -> Callable[[Objects], tuple[Nursery, Worker, int]]:
    """`begin(place)`: a worker whose step runs and does not end by itself, and the process of that step."""

    def start(place: Objects) -> tuple[Nursery, Worker, int]:
        turns = tmp_path / "turns"
        turns.mkdir()
        nursery = make_nursery(place, 1, lifetime=LIFETIME, turns=turns)
        worker = nursery.start("blob/0")
        lab.wait_until((turns / "0").exists, "the step runs")
        _, step = with_step(worker)
        return nursery, worker, step

    return start


def assert_ends_in_time(place: Objects, nursery: Nursery, worker: Worker, step: int, cut: float) -> None:
    """The store answers nobody since `cut`."""
    while not has_ended(step):
        late = time.monotonic() - cut - LIFETIME
        assert late < GRACE, f"its step runs {late:.1f} s after the end of its lease:\n{worker.output}"
        time.sleep(0.02)
    place.emulator.clear_faults()
    assert nursery.wait(worker) == REFUSED, worker.output
    assert "lost its lease and was ended: the lease could not be refreshed" in worker.output
    code, successor = nursery.run("blob/0")
    assert code == 0, successor.output
    assert_finished(place, nursery, "blob/0")


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
def test_while_the_step_runs(
    kind: str, make_place: Callable[[str], Objects], begin: Callable[[Objects], tuple[Nursery, Worker, int]], lab: Lab
) -> None:
    place = make_place(kind)
    nursery, worker, step = begin(place)
    lab.wait_until(lambda: place.read(f"{nursery.folder_of('blob/0')}/{INFO}") is not None, "the info")
    place.emulator.inject("cut")
    assert_ends_in_time(place, nursery, worker, step, time.monotonic())


@pytest.mark.parametrize("kind", ["gcs", pytest.param("s3", marks=pytest.mark.faults)])
def test_while_the_info_is_written(
    kind: str, make_place: Callable[[str], Objects], begin: Callable[[Objects], tuple[Nursery, Worker, int]]
) -> None:
    """That is tried for a minute, while the step runs already."""
    place = make_place(kind)
    place.emulator.inject("503", methods=["POST", "PUT"], path="executor_info")
    nursery, worker, step = begin(place)
    place.emulator.inject("cut")
    assert_ends_in_time(place, nursery, worker, step, time.monotonic())


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_to_stop_while_the_info_is_written(
    kind: str, make_place: Callable[[str], Objects], begin: Callable[[Objects], tuple[Nursery, Worker, int]]
) -> None:
    place = make_place(kind)
    place.emulator.inject("503", methods=["POST", "PUT"], path="executor_info")
    _, worker, step = begin(place)
    os.kill(worker.pid, signal.SIGTERM)
    asked = time.monotonic()
    while not has_ended(step):
        seconds = time.monotonic() - asked
        assert seconds < GRACE, f"its step still runs {seconds:.1f} s after SIGTERM:\n{worker.output}"
        time.sleep(0.02)
