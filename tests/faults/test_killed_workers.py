"""SIGKILL at every boundary of a worker's I/O: the next worker finishes the step, and it is committed once.

On a local disk the worker dies before each change, on GCS and S3 before and after each call. Whatever it leaves behind,
nothing partial counts as done.
"""

import signal
from collections.abc import Callable

import pytest

from support.faults.nursery import Nursery
from support.faults.places import Place
from support.faults.verdicts import assert_finished, assert_nothing_partial_counts

PLACES = ("local", "gcs", "s3")
MOST_BOUNDARIES = 150


def sweep(place: Place, nursery: Nursery, *, killed_before: int | None, first: int, stride: int) -> int:
    """Kill a worker at each boundary; `killed_before`: another one before it, at that boundary. Counts the kills."""
    for kills, fatal in enumerate(range(first, MOST_BOUNDARIES, stride)):
        step = f"blob/{fatal}"
        if killed_before is not None:
            code, worker = nursery.run(step, fatal=killed_before)
            assert code == -signal.SIGKILL, worker.output
        code, worker = nursery.run(step, fatal=fatal)
        at = f"killed at {worker.boundaries[-1]}:\n{worker.output}"
        assert code in (0, -signal.SIGKILL), at
        assert_nothing_partial_counts(place, nursery, step)
        if code == 0:  # It had come to its end before that.
            assert_finished(place, nursery, step)
            return kills
        code, worker = nursery.run(step)
        assert code == 0, f"{at}\n{worker.output}"
        assert "waiting: held by" not in worker.output
        assert_finished(place, nursery, step)
    pytest.fail(f"a worker has more than {MOST_BOUNDARIES} boundaries")


@pytest.mark.parametrize(("kind", "stride"), [("local", 3), ("gcs", 7), ("s3", 13)])
def test_some_boundaries(
    kind: str, stride: int, make_place: Callable[[str], Place], make_nursery: Callable[..., Nursery]
) -> None:
    place = make_place(kind)
    kills = sweep(place, make_nursery(place, MOST_BOUNDARIES), killed_before=None, first=2, stride=stride)
    assert kills >= 3


@pytest.mark.faults
@pytest.mark.parametrize("kind", PLACES)
def test_every_boundary(
    kind: str,
    make_place: Callable[[str], Place],
    make_nursery: Callable[..., Nursery],
    tell: Callable[[str], None],
) -> None:
    place = make_place(kind)
    kills = sweep(place, make_nursery(place, MOST_BOUNDARIES), killed_before=None, first=1, stride=1)
    tell(f"{kind}: {kills} workers killed, each at another boundary")
    assert kills >= 20


@pytest.mark.faults
@pytest.mark.parametrize("kind", PLACES)
def test_every_boundary_of_a_successor(
    kind: str,
    make_place: Callable[[str], Place],
    make_nursery: Callable[..., Nursery],
    tell: Callable[[str], None],
) -> None:
    """A worker that takes over from a dead one goes other ways, and may die on each of them."""
    place = make_place(kind)
    nursery = make_nursery(place, MOST_BOUNDARIES)
    _, worker = nursery.run("blob/0")
    middle = len(worker.boundaries) // 2
    kills = sweep(place, nursery, killed_before=middle, first=1, stride=1)
    tell(f"{kind}: {kills} successors killed, each at another boundary")
    assert kills >= 20
