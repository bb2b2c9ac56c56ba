"""Every interleaving of the calls of two workers, and of three up to a depth, on each kind of store: never two commits.

A worker takes the lease, reads the status, writes RUNNING, refreshes, writes SUCCESS and gives the lease back. Between
any two of its calls the lease may expire, and others may do anything. `lease_models.oracle` says what must not happen.
"""

import pytest

from support.lease_models.programs import run_step, run_step_again
from support.lease_models.replay import FENCED, KEEPING, NUMBERED, REPEATING, Kind, Replayer
from support.lease_models.search import Bounds, Search

each_kind = pytest.mark.parametrize("kind", [FENCED, NUMBERED, REPEATING, KEEPING], ids=lambda kind: kind.name)


def no_violation(kind: Kind, bounds: Bounds, *, forced: bool = False) -> Search:
    program = run_step_again if forced else run_step
    replayer = Replayer(kind, program, knows_the_dead=bounds.kills > 0)
    search = Search(kind, replayer, bounds, status=b"SUCCESS" if forced else None, may_repeat=forced)
    violation = search.run()
    assert violation is None, "\n".join(violation)
    print(f"{kind.name}, {bounds}: {search.states} states, {search.transitions} events, depth {search.deepest}")
    return search


@each_kind
def test_two_workers_and_two_expiries(kind: Kind) -> None:
    search = no_violation(kind, Bounds(workers=2, expiries=2))
    assert search.is_complete
    assert search.states > 10_000


@each_kind
def test_two_workers_and_an_answer_that_is_lost_at_the_start(kind: Kind) -> None:
    no_violation(kind, Bounds(workers=2, expiries=1, losses=1, depth=12))


@each_kind
def test_two_workers_one_of_which_is_killed_and_seen_to_be(kind: Kind) -> None:
    no_violation(kind, Bounds(workers=2, expiries=1, kills=1, depth=17))


@each_kind
def test_three_workers_at_the_start(kind: Kind) -> None:
    no_violation(kind, Bounds(workers=3, expiries=1, depth=11))


@pytest.mark.parametrize("kind", [FENCED, NUMBERED], ids=lambda kind: kind.name)
def test_two_workers_that_are_to_run_a_done_step_again(kind: Kind) -> None:
    assert no_violation(kind, Bounds(workers=2, expiries=1), forced=True).is_complete


@pytest.mark.faults
@each_kind
@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(workers=2, expiries=2, losses=1),
        Bounds(workers=2, expiries=2, kills=1),
        Bounds(workers=3, expiries=2, depth=18),
        Bounds(workers=3, expiries=2, losses=1, depth=14),
        Bounds(workers=3, expiries=1, kills=1, depth=16),
    ],
    ids=str,
)
def test_every_interleaving(kind: Kind, bounds: Bounds) -> None:
    search = no_violation(kind, bounds)
    assert search.is_complete == (bounds.depth is None)


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(workers=1, expiries=0, losses=1),
        pytest.param(Bounds(workers=2, expiries=1, losses=1, depth=17), marks=pytest.mark.faults),
    ],
    ids=str,
)
def test_a_done_step_that_is_run_again_where_versions_repeat(bounds: Bounds) -> None:
    no_violation(REPEATING, bounds, forced=True)
