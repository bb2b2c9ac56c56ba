"""A log that takes longer to upload than a lease lives costs neither the lease nor the step."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.faults.nursery import Nursery
from support.faults.places import LOG, Objects
from support.faults.verdicts import assert_finished
from support.lab import Lab

LIFETIME = 3.0
UPLOAD_SECONDS = 2 * LIFETIME


@pytest.mark.parametrize("kind", ["s3", "gcs"])
def test_the_heart_beats_while_a_log_is_uploaded(
    kind: str, tmp_path: Path, make_place: Callable[[str], Objects], make_nursery: Callable[..., Nursery], lab: Lab
) -> None:
    turns = tmp_path / "turns"
    turns.mkdir()
    place = make_place(kind)
    nursery = make_nursery(place, 1, lifetime=LIFETIME, turns=turns)
    place.emulator.inject("latency", methods=["PUT", "POST"], path="executor_log", seconds=UPLOAD_SECONDS)
    worker = nursery.start("blob/0")
    is_log = f"{nursery.folder_of('blob/0')}/{LOG}".partition("://")[2]
    lab.wait_until(lambda: any(call.place == is_log for call in place.emulator.calls()), "the upload")
    began = time.monotonic()
    lab.wait_until(lambda: time.monotonic() > began + UPLOAD_SECONDS, "most of the upload")
    assert nursery.ends_within(worker, 0) is None, worker.output
    (turns / "0.go").touch()
    assert nursery.wait(worker) == 0, worker.output
    assert "lease" not in worker.output, "no heartbeat was late"
    assert_finished(place, nursery, "blob/0")
    log = place.read(f"{nursery.folder_of('blob/0')}/{LOG}") or b""
    assert log.count(b"the first attempt waits") == 1
    assert b" SUCCESS after " in log
