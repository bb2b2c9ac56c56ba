"""Random schedules of machines and drivers at twelve tasks: each is recorded once, the step is done once, after all.

See `support.lease_models.array_world`. A failure names its seed.
"""

from collections import Counter
from pathlib import Path

import pytest

from support.lease_models.array_world import ArrayWorld
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
