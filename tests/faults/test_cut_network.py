"""The store is away for a while in the middle of a run: the run goes on or fails loud, and the next one finishes."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.faults.dags import EXPERIMENT, Dag
from support.faults.places import Objects
from support.lab import Lab

STEPS = 3
STOPPED_SECONDS = 5.0
CALLS_WITHOUT_ANSWER = 2
SHORT_LIFETIME = 2

OUTAGES = [
    pytest.param("gcs", "cut"),
    *(
        pytest.param(kind, outage, marks=pytest.mark.faults)
        for kind, outage in (("gcs", "hang"), ("gcs", "stopped"), ("s3", "cut"), ("s3", "hang"), ("s3", "stopped"))
    ),
]


@contextlib.contextmanager
def away(place: Objects, outage: str, wait_until: Callable[..., object]) -> Iterator[None]:
    """The store answers nobody, until some calls have been made in vain."""
    emulator = place.emulator
    emulator.forget_calls()
    if outage == "stopped":
        os.kill(emulator.pid, signal.SIGSTOP)
    else:
        emulator.inject(outage)
    began = time.monotonic()
    try:
        yield
        if outage == "stopped":  # It cannot tell of calls now.
            wait_until(lambda: time.monotonic() > began + STOPPED_SECONDS, "the end of the outage")
        else:
            wait_until(lambda: len(emulator.calls()) >= CALLS_WITHOUT_ANSWER, "some calls in vain")
    finally:
        os.kill(emulator.pid, signal.SIGCONT)
        emulator.clear_faults()


@pytest.mark.parametrize(("kind", "outage"), OUTAGES)
def test_the_store_is_away(
    kind: str,
    outage: str,
    tmp_path: Path,
    make_place: Callable[[str], Objects],
    lab: Lab,
    tell: Callable[[str], None],
    request: pytest.FixtureRequest,
) -> None:
    place = make_place(kind)
    gate = tmp_path / "gate"
    dag = Dag(tmp_path, place, STEPS, seed=5, gates={0: gate})
    options = {"experiment": EXPERIMENT, "prefix": place.prefix, "env": dag.environment}
    run = lab.start_snakemake("-j", "2", **options)
    run.wait_for((tmp_path / "gate.reached").exists, "the step runs")
    with away(place, outage, lab.wait_until):
        gate.touch()  # It now tries to write its data, and its worker to commit.
    result = run.wait(180)
    dag.assert_nothing_wrong_counts()
    if result.code != 0:
        assert "Run the same command again" in result.output, result.output
        again = lab.snakemake("-j", "2", **options)
        assert again.code == 0, again.output
    dag.assert_finished()
    assert dag.leases() == []
    if request.node.get_closest_marker("faults"):
        tell(f"{kind}, {outage}: exit code {result.code} after {result.seconds:.0f} s, then finished")


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["gcs", "s3"])
def test_a_store_that_is_away_for_longer_than_a_lease_lives(
    kind: str, tmp_path: Path, make_place: Callable[[str], Objects], lab: Lab
) -> None:
    """A worker cannot know whether somebody else has the step by then: it must end it."""
    place = make_place(kind)
    gate = tmp_path / "gate"
    dag = Dag(tmp_path, place, STEPS, seed=5, gates={0: gate})
    environment = {**dag.environment, "MARIN_LEASE_LIFETIME_SECONDS": str(SHORT_LIFETIME)}
    options = {"experiment": EXPERIMENT, "prefix": place.prefix, "env": environment}
    run = lab.start_snakemake("-j", "2", **options)
    run.wait_for((tmp_path / "gate.reached").exists, "the step runs")
    place.emulator.forget_calls()
    place.emulator.inject("cut")
    # It has ended its step when it wants to give the lease back.
    run.wait_for(lambda: any(call.method == "DELETE" for call in place.emulator.calls()), "the loss")
    place.emulator.clear_faults()
    result = run.wait(180)
    assert result.code == 1, result.output
    assert "[mix/0] lost its lease and was ended: the lease could not be refreshed" in result.output
    dag.assert_nothing_wrong_counts()

    gate.touch()
    again = lab.snakemake("-j", "2", **options)
    assert again.code == 0, again.output
    dag.assert_finished()
    assert dag.leases() == []
