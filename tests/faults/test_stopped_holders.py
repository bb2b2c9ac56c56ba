"""A holder that is stopped (SIGSTOP) for three lifetimes and then goes on: another worker has committed meanwhile.

The late one is refused (exit code 75) and leaves no trace: no status, info, log or artifact of its own.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.nursery import Nursery, Worker, send, with_step
from faults.places import INFO, LOG, STATUS, Place
from faults.verdicts import assert_finished

LIFETIME = 1.0
LIFETIMES_STOPPED = 3
REFUSED = 75
AT_ONCE = 8
MOST_BOUNDARIES = 60

KINDS = [
    pytest.param("local", marks=pytest.mark.faults),
    "gcs",
    pytest.param("s3", marks=pytest.mark.faults),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_holder_is_refused(
    kind: str,
    tmp_path: Path,
    make_place: Callable[[str], Place],
    make_nursery: Callable[..., Nursery],
    wait_until: Callable[..., object],
) -> None:
    turns = tmp_path / "turns"
    turns.mkdir()
    place = make_place(kind)
    nursery = make_nursery(place, 1, lifetime=LIFETIME, turns=turns)
    folder = nursery.folder_of("blob/0")
    late = nursery.start("blob/0")
    wait_until(lambda: "the first attempt waits" in late.output, "the step runs")
    wait_until(lambda: place.read(f"{folder}/{INFO}") is not None, "the info")
    processes = with_step(late)
    assert len(processes) == 2
    send(processes, signal.SIGSTOP)
    stopped = time.monotonic()

    code, successor = nursery.run("blob/0")
    assert code == 0, successor.output
    assert "waiting: held by" in successor.output
    wait_until(lambda: time.monotonic() > stopped + LIFETIMES_STOPPED * LIFETIME, "three lifetimes")
    state = place.state(folder)
    send(processes, signal.SIGCONT)

    assert nursery.wait(late) == REFUSED, late.output
    assert "[blob/0] lost its lease and was ended: " in late.output
    assert not any(os.path.exists(f"/proc/{pid}") for pid in processes)
    assert place.state(folder) == state
    assert_finished(place, nursery, "blob/0")


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["local", "gcs", "s3"])
def test_stopped_at_every_boundary(
    kind: str,
    make_place: Callable[[str], Place],
    make_nursery: Callable[..., Nursery],
    wait_until: Callable[..., object],
    tell: Callable[[str], None],
) -> None:
    """Also between the look at the lease and the write that relies on it."""
    place = make_place(kind)
    nursery = make_nursery(place, MOST_BOUNDARIES, lifetime=LIFETIME)
    code, worker = nursery.run("blob/0")
    assert code == 0, worker.output
    boundaries = range(1, len(worker.boundaries) + 1)
    assert len(boundaries) < MOST_BOUNDARIES
    codes: list[int | None] = []
    for first in range(1, len(boundaries) + 1, AT_ONCE):
        batch = [number for number in boundaries if first <= number < first + AT_ONCE]
        codes += stop_and_continue(place, nursery, [f"blob/{number}" for number in batch], batch, wait_until)
    assert set(codes) == {0, REFUSED}, codes
    tell(f"{kind}: {len(codes)} workers stopped, each at another boundary; {codes.count(REFUSED)} of them refused")
    assert codes.count(REFUSED) > len(codes) / 3


def stop_and_continue(
    place: Place, nursery: Nursery, steps: list[str], fatal: list[int], wait_until: Callable[..., object]
) -> list[int | None]:
    """Stop a worker of each step at its boundary until a successor has ended; returns their exit codes."""
    late = [
        nursery.start(step, fatal=number, strike=signal.SIGSTOP) for step, number in zip(steps, fatal, strict=True)
    ]
    for worker in late:
        assert nursery.wait(worker) is None, worker.output
    stopped = time.monotonic()
    successors = [nursery.start(step) for step in steps]
    # A worker that is stopped while it has the lock on a local lease file keeps its successor waiting. That is no
    # takeover, and safe: such a pair is only looked at in the end.
    ended = [nursery.ends_within(worker, 10 * LIFETIME) for worker in successors]
    wait_until(lambda: time.monotonic() > stopped + LIFETIMES_STOPPED * LIFETIME, "three lifetimes")
    states = [own_files(place, nursery.folder_of(step)) for step in steps]
    for worker in late:
        send(with_step(worker), signal.SIGCONT)
    codes = [nursery.wait(worker) for worker in late]
    for step, number, one, code, other, other_code, state in zip(
        steps, fatal, late, codes, successors, ended, states, strict=True
    ):
        told = f"{code} {one.boundaries[number - 1]}\n{one.output}\n--- successor: {other_code}\n{other.output}"
        if other_code is None:
            assert holds_the_lock(one, number), told
            assert nursery.wait(other) == 0, told
        else:
            assert other_code == 0, told
            assert own_files(place, nursery.folder_of(step)) == state, told
        assert_finished(place, nursery, step)
    return codes


def holds_the_lock(worker: Worker, number: int) -> bool:
    event = worker.boundaries[number - 1].split()[1]
    return event in ("os.rename", "os.remove")


def own_files(place: Place, folder: str) -> dict[str, object]:
    """Status, info and artifact with their versions. The log of a local step is appended to without a fence, and a
    step that was stopped in the middle of writing its data goes on with that until it is ended."""
    kept = place.state(folder)
    return {name: version for name, version in kept.items() if name in (STATUS, INFO, ".artifact.json")} | (
        {LOG: kept.get(LOG)} if "://" in folder else {}
    )
