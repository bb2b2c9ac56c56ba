"""A crowd of contenders, thousands of acquisitions, everything going wrong: never two holders, never two commits."""

from collections import Counter

import pytest

from support.lease_models import mutants
from support.lease_models.crowd import Crowd
from support.lease_models.oracle import Violation
from support.lease_models.replay import FENCED, NUMBERED, REPEATING, Kind, MakeLease

TEN_MINUTES = 600.0

each_kind = pytest.mark.parametrize("kind", [FENCED, NUMBERED, REPEATING], ids=lambda kind: kind.name)


def play(kind: Kind, seed: int, contenders: int, acquires: int) -> Crowd:
    """A run without a violation, in which what should happen does happen."""
    crowd = Crowd(kind, seed, contenders, acquires, skew=TEN_MINUTES)
    crowd.run()
    return crowd


def check_that_much_happened(crowd: Crowd) -> None:
    print(f"{crowd.kind.name}: {dict(crowd.counts)}")
    for event in ("steps done", "takeovers", "creations", "lost", "died seen", "died unseen", "late writes made"):
        assert crowd.counts[event] > 10, event
    if not crowd.kind.is_fenced:
        assert crowd.counts["changed under a takeover"] > 5


@each_kind
def test_sixteen_contenders(kind: Kind) -> None:
    check_that_much_happened(play(kind, seed=1, contenders=16, acquires=500))


@pytest.mark.faults
@each_kind
def test_sixteen_contenders_with_ten_thousand_acquires_each(kind: Kind) -> None:
    crowd = play(kind, seed=2, contenders=16, acquires=10_000)
    check_that_much_happened(crowd)


@each_kind
def test_wall_clocks_that_are_ten_minutes_wrong(kind: Kind) -> None:
    for seed in range(20):
        play(kind, seed, contenders=4, acquires=50)


@pytest.mark.faults
@each_kind
def test_wall_clocks_that_are_ten_minutes_wrong_in_a_thousand_schedules(kind: Kind) -> None:
    counts = Counter[str]()
    for seed in range(1000):
        counts += play(kind, seed, contenders=4, acquires=50).counts
    print(f"{kind.name}: {dict(counts)}")
    assert counts["takeovers"] > 1000
    assert counts["lost"] > 100


@pytest.mark.parametrize(
    ("kind", "make_lease"),
    [
        pytest.param(NUMBERED, mutants.broken_lease(mutants.StaleByTheWallClock), id="staleness by the wall clock"),
        pytest.param(FENCED, mutants.broken_lease(mutants.StaleSinceTheFirstLook), id="staleness since the first look"),
        pytest.param(FENCED, mutants.broken_lease(mutants.RefreshAtAnyVersion), id="a refresh at any version"),
        pytest.param(NUMBERED, mutants.broken_lease(mutants.RefreshWithoutChange), id="a refresh that nobody sees"),
        pytest.param(REPEATING, mutants.broken_lease(mutants.TakeoverAtAnyVersion), id="a takeover at any version"),
        pytest.param(FENCED, mutants.broken_lease(mutants.ReleaseAtAnyVersion), id="a release at any version"),
        pytest.param(NUMBERED, mutants.broken_objects(mutants.CommitWithoutLease), id="a commit without the lease"),
        pytest.param(REPEATING, mutants.broken_objects(mutants.LatestCompared), id="the latest status compared"),
    ],
)
def test_the_crowd_finds(kind: Kind, make_lease: MakeLease) -> None:
    def play_until_it_fails() -> None:
        for seed in range(50):
            Crowd(kind, seed, contenders=8, acquires=200, make_lease=make_lease, skew=TEN_MINUTES).run()

    with pytest.raises(Violation):
        play_until_it_fails()
