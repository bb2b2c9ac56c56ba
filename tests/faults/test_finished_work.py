"""What a worker has done is not thrown away: not by a pause in which nobody took its lease, and not by a store that
refuses the last writes for a while. And a step that empties its own folder is told so."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.faults.nursery import Nursery, send, with_step
from support.faults.places import INFO, LOG, STATUS, Objects, Place
from support.faults.verdicts import assert_finished
from support.lab import Lab

LIFETIME = 3.0
LIFETIMES_PAUSED = 2
FAILED = 1

STORES = ["gcs", pytest.param("s3", marks=pytest.mark.faults)]
EVERYWHERE = ["local", *STORES]


@pytest.fixture
def turns(tmp_path: Path) -> Path:
    folder = tmp_path / "turns"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("kind", EVERYWHERE)
def test_a_pause_in_which_nobody_took_the_lease(
    kind: str, turns: Path, make_place: Callable[[str], Place], make_nursery: Callable[..., Nursery], lab: Lab
) -> None:
    place = make_place(kind)
    nursery = make_nursery(place, 1, lifetime=LIFETIME, turns=turns)
    worker = nursery.start("blob/0")
    lab.wait_until(lambda: "the first attempt waits" in worker.output, "the step runs")
    lab.wait_until(lambda: place.read(f"{nursery.folder_of('blob/0')}/{INFO}") is not None, "the info")
    processes = with_step(worker)
    paused = time.monotonic()
    send(processes, signal.SIGSTOP)
    lab.wait_until(lambda: time.monotonic() > paused + LIFETIMES_PAUSED * LIFETIME, "the end of the pause")
    send(processes, signal.SIGCONT)
    lab.wait_until(lambda: "and it continues" in worker.output, "the lease is kept")
    (turns / "0.go").touch()

    assert nursery.wait(worker) == 0, worker.output
    assert_finished(place, nursery, "blob/0")
    log = place.read(f"{nursery.folder_of('blob/0')}/{LOG}") or b""
    for text in (worker.output, log.decode()):
        assert "[blob/0] was paused for " in text
        assert "nobody took its lease meanwhile, and it continues" in text


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("refusal", ["403", pytest.param("401", marks=pytest.mark.faults)])
def test_the_last_writes_are_refused_for_a_while(
    kind: str,
    refusal: str,
    turns: Path,
    make_place: Callable[[str], Objects],
    make_nursery: Callable[..., Nursery],
    lab: Lab,
) -> None:
    place = make_place(kind)
    nursery = make_nursery(place, 1, lifetime=LIFETIME, turns=turns)
    worker = nursery.start("blob/0")
    lab.wait_until(lambda: "the first attempt waits" in worker.output, "the step runs")
    place.emulator.inject(refusal, methods=["POST", "PUT"], path=f"{STATUS}$")
    (turns / "0.go").touch()
    told = "[blob/0] is finished, but cannot record that yet, and will try again: cannot write"
    lab.wait_until(lambda: told in worker.output, "the refusal")
    place.emulator.clear_faults()
    assert nursery.wait(worker) == 0, worker.output
    assert_finished(place, nursery, "blob/0")


@pytest.mark.parametrize("kind", EVERYWHERE)
def test_a_step_that_empties_its_own_folder(
    kind: str, turns: Path, make_place: Callable[[str], Place], make_nursery: Callable[..., Nursery], lab: Lab
) -> None:
    place = make_place(kind)
    nursery = make_nursery(place, 1, turns=turns)
    folder = nursery.folder_of("blob/0")
    worker = nursery.start("blob/0")
    lab.wait_until(lambda: "the first attempt waits" in worker.output, "the step runs")
    lab.wait_until(lambda: place.read(f"{folder}/{INFO}") is not None, "the info")
    (turns / "0.empty").touch()
    (turns / "0.go").touch()
    assert nursery.wait(worker) == FAILED, worker.output
    assert f"[blob/0] FAILED: its output folder {folder} was emptied or removed while it ran" in worker.output
    assert "Most likely the step did it itself" in worker.output
    assert "lost its lease" not in worker.output
    failures = [
        path for path in (nursery.plan.parent).rglob("*") if path.is_file() and b"was emptied" in path.read_bytes()
    ]
    assert len(failures) == 1, "what the driver reads"
    assert place.read(f"{folder}/{STATUS}") is None

    code, again = nursery.run("blob/0")
    assert code == 0, again.output
    assert_finished(place, nursery, "blob/0")
    assert json.loads(place.read(f"{folder}/{INFO}") or b"")["run"]["attempt"] == 1
