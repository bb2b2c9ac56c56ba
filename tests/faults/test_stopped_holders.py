"""A holder that is stopped (SIGSTOP) for three lifetimes and then goes on: another worker has committed meanwhile.

The late one is refused (exit code 75) and leaves no trace: no status, info, log or artifact of its own.
"""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

import pytest

from support.faults.nursery import Nursery, Worker, send, with_step
from support.faults.places import ARTIFACT, INFO, LEASE, LOG, STATUS, Place
from support.faults.verdicts import assert_finished
from support.lab import Lab

LIFETIME = 1.5
LIFETIMES_STOPPED = 3
REFUSED = 75
AT_ONCE = 6
STARTS = 5
MOST_BOUNDARIES = 120

KINDS = [
    pytest.param("local", marks=pytest.mark.faults),
    "gcs",
    pytest.param("s3", marks=pytest.mark.faults),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_holder_is_refused(
    kind: str, tmp_path: Path, make_place: Callable[[str], Place], make_nursery: Callable[..., Nursery], lab: Lab
) -> None:
    turns = tmp_path / "turns"
    turns.mkdir()
    place = make_place(kind)
    nursery = make_nursery(place, 1, lifetime=LIFETIME, turns=turns)
    folder = nursery.folder_of("blob/0")
    late = nursery.start("blob/0")
    lab.wait_until(lambda: "the first attempt waits" in late.output, "the step runs")
    lab.wait_until(lambda: place.read(f"{folder}/{INFO}") is not None, "the info")
    processes = with_step(late)
    assert len(processes) == 2
    send(processes, signal.SIGSTOP)
    stopped, began = time.monotonic(), time.time()

    successor = nursery.start("blob/0")
    finish(nursery, successor)
    assert "waiting: held by" in successor.output
    assert f"[blob/0] takes over from {socket.gethostname()}-{late.pid}-" in successor.output
    info = json.loads(place.read(f"{folder}/{INFO}") or b"")
    # To the second. What it waited for the lease is no part of its time.
    assert datetime.fromisoformat(info["run"]["started"]).timestamp() > began + LIFETIME / 3 - 1
    assert info["run"]["seconds"] < time.monotonic() - stopped - LIFETIME / 3
    lab.wait_until(lambda: time.monotonic() > stopped + LIFETIMES_STOPPED * LIFETIME, "three lifetimes")
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
    lab: Lab,
    tell: Callable[[str], None],
) -> None:
    """Also between the look at the lease and the write that relies on it."""
    place = make_place(kind)
    nursery = make_nursery(place, MOST_BOUNDARIES, lifetime=LIFETIME)
    code, worker = nursery.run("blob/0")
    assert code == 0, worker.output
    boundaries = range(1, len(worker.boundaries) + 1)
    assert len(boundaries) < MOST_BOUNDARIES
    codes: list[int] = []
    for first in range(1, len(boundaries) + 1, AT_ONCE):
        batch = {f"blob/{number}": number for number in boundaries if first <= number < first + AT_ONCE}
        codes += stop_and_continue(place, nursery, batch, lab.wait_until)
    assert set(codes) == {0, REFUSED}, codes
    tell(f"{kind}: {len(codes)} workers stopped, each at another boundary; {codes.count(REFUSED)} of them refused")
    assert codes.count(REFUSED) > len(codes) / 3


def stop_and_continue(
    place: Place, nursery: Nursery, steps: Mapping[str, int], wait_until: Callable[..., object]
) -> list[int]:
    """Stop a worker of each step at a boundary until a successor has ended; returns the exit codes of the stopped."""
    late = [nursery.start(step, fatal=number, strike=signal.SIGSTOP) for step, number in steps.items()]
    # One that had no heartbeat to do has fewer boundaries than another.
    late = [worker for worker in late if nursery.stops(worker)]
    stopped = time.monotonic()
    successors = [nursery.start(worker.step) for worker in late]
    locked = [holds_the_lock(worker, steps[worker.step]) for worker in late]
    for worker, is_locked in zip(successors, locked, strict=True):
        if not is_locked:
            finish(nursery, worker)
    wait_until(lambda: time.monotonic() > stopped + LIFETIMES_STOPPED * LIFETIME, "three lifetimes")
    states = [own_files(place, nursery.folder_of(worker.step)) for worker in late]
    for worker in late:
        send(with_step(worker), signal.SIGCONT)
    codes = [nursery.wait(worker) for worker in late]
    for one, other, is_locked, state in zip(late, successors, locked, states, strict=True):
        told = f"{one.boundaries}\n{one.output}\n--- successor:\n{other.output}"
        if is_locked:
            assert nursery.wait(other) in (0, REFUSED), told
            finish(nursery, nursery.start(one.step))
        else:
            assert own_files(place, nursery.folder_of(one.step)) == state, told
        assert_finished(place, nursery, one.step)
    return codes


def finish(nursery: Nursery, worker: Worker) -> None:
    """Wait for a successor. On a busy machine it may be too slow for so short a lifetime: then it is started again."""
    code = nursery.wait(worker)
    for _ in range(STARTS):
        if code != REFUSED:
            break
        code, worker = nursery.run(worker.step)
    assert code == 0, worker.output


def holds_the_lock(worker: Worker, number: int) -> bool:
    """Whether it was stopped with the lock on its local lease file. Nobody can take the lease from it then: whoever
    tries waits in the kernel, and may come too late for its own lease. That is safe, and the next worker finishes."""
    _, event, *paths = worker.boundaries[number - 1].split()
    return event == "os.rename" or (event == "os.remove" and paths[0].endswith(f"/{LEASE}"))


def own_files(place: Place, folder: str) -> dict[str, object]:
    """Status, info, artifact and log with their versions. Not the data: a step that was stopped while it wrote them may
    go on with that until it is ended. And not a local log, which is appended to without a look at the lease."""
    names = (STATUS, INFO, ARTIFACT, *([LOG] if "://" in folder else []))
    return {name: version for name, version in place.state(folder).items() if name in names}
