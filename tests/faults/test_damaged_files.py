"""Truncated or garbage status, lease, info and plan: a named error or a recovery, never "done"."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_rules.plans.plan_file import PlanFileError, read_plan
from marin_rules.worker import main as workers
from support.faults.nursery import Nursery
from support.faults.places import INFO, LEASE, STATUS, Place
from support.faults.verdicts import assert_finished
from support.lab import Lab

STATUSES = (b"", b"\n", b"SUCC", b"success", b"SUCCESS\0", b"SUCCESS SUCCESS", b"\xff\xfe", b"{", b'{"status": "SUCC')
STATUSES += (b'{"status": "SUCCESS"}\n{"stat', b'{"state": "SUCCESS"}', b"[" * 100_000)
LEASES = (b"", b"{", b"garbage", b"[]", b'{"worker_id": 1}', b'{"worker_id": "a", "timestamp": 1e400}')
INFOS = (b"", b"{", b"garbage", b"[]", b'{"run": 3}', b'{"version_digest": "0123"}')
PLACES = ("local", "gcs")
EXPIRY_SECONDS = 90


@pytest.mark.parametrize("kind", PLACES)
def test_a_damaged_status_is_named_and_kept(
    kind: str, make_place: Callable[[str], Place], make_nursery: Callable[..., Nursery]
) -> None:
    place = make_place(kind)
    nursery = make_nursery(place, len(STATUSES))
    for number, damaged in enumerate(STATUSES):
        path = f"{nursery.folder_of(f'blob/{number}')}/{STATUS}"
        place.write(path, damaged)
        code, worker = nursery.run(f"blob/{number}")
        assert code == 1, (damaged[:50], worker.output)
        assert f"the status file {path} holds " in worker.output
        assert place.read(path) == damaged
        assert place.read(f"{nursery.folder_of(f'blob/{number}')}/{LEASE}") is None
    place.delete(path)
    assert nursery.run(f"blob/{number}")[0] == 0
    assert place.read(path) == b"SUCCESS"


@pytest.mark.parametrize("kind", PLACES)
def test_a_damaged_info_is_named(
    kind: str, make_place: Callable[[str], Place], make_nursery: Callable[..., Nursery]
) -> None:
    place = make_place(kind)
    nursery = make_nursery(place, len(INFOS) + 2)
    assert nursery.run("blob/0")[0] == 0
    whole = place.read(f"{nursery.folder_of('blob/0')}/{INFO}")
    assert whole is not None
    truncated = whole.replace(b"blob/0", b"blob/1")[: len(whole) // 2]
    for number, damaged in enumerate([truncated, *INFOS], start=1):
        folder = nursery.folder_of(f"blob/{number}")
        place.write(f"{folder}/{STATUS}", b"CANCELLED")
        place.write(f"{folder}/{INFO}", damaged)
        code, worker = nursery.run(f"blob/{number}")
        assert code == 1, (damaged, worker.output)
        assert f"{folder}/{INFO}" in worker.output
        assert place.read(f"{folder}/{STATUS}") != b"SUCCESS"
        assert place.read(f"{folder}/{LEASE}") is None
        place.delete(f"{folder}/{INFO}")
    assert nursery.run(f"blob/{number}")[0] == 0
    assert_finished(place, nursery, f"blob/{number}")


@pytest.mark.parametrize("kind", PLACES)
def test_a_damaged_lease_is_waited_for_until_it_is_deleted(
    kind: str, make_place: Callable[[str], Place], make_nursery: Callable[..., Nursery], lab: Lab
) -> None:
    place = make_place(kind)
    nursery = make_nursery(place, len(LEASES))
    leases = {f"blob/{number}": damaged for number, damaged in enumerate(LEASES)}
    for step, damaged in leases.items():
        place.write(f"{nursery.folder_of(step)}/{STATUS}", b"RUNNING")
        place.write(f"{nursery.folder_of(step)}/{LEASE}", damaged)
    started = [nursery.start(step) for step in leases]
    for worker in started:
        path = f"{nursery.folder_of(worker.step)}/{LEASE}"
        said = "waiting: held by an unknown worker (the lease file cannot be read)"
        lab.wait_until(lambda worker=worker, said=said: said in worker.output, "the wait")
        assert place.read(path) == leases[worker.step]
        place.delete(path)
    for worker in started:
        assert nursery.wait(worker) == 0, worker.output
        assert_finished(place, nursery, worker.step)


@pytest.mark.faults
@pytest.mark.parametrize("kind", PLACES)
def test_a_damaged_lease_expires(
    kind: str, make_place: Callable[[str], Place], make_nursery: Callable[..., Nursery]
) -> None:
    place = make_place(kind)
    nursery = make_nursery(place, 1)
    place.write(f"{nursery.folder_of('blob/0')}/{LEASE}", b"garbage")
    worker = nursery.start("blob/0")
    assert nursery.wait(worker, EXPIRY_SECONDS + 30) == 0, worker.output
    assert_finished(place, nursery, "blob/0")


def test_a_truncated_plan_runs_nothing(
    make_place: Callable[[str], Place], make_nursery: Callable[..., Nursery], capsys: pytest.CaptureFixture[str]
) -> None:
    place = make_place("local")
    nursery = make_nursery(place, 2)
    whole = nursery.plan.read_bytes()
    options = workers.parse(["--plan", str(nursery.plan), "--step", nursery.key("blob/0")])
    for damaged in (b"", b"garbage", whole[:10], whole[:40], whole[: len(whole) // 2], whole[:-1], None):
        if damaged is None:
            nursery.plan.unlink()
        else:
            nursery.plan.write_bytes(damaged)
        assert workers.main(options) == 1
        told = capsys.readouterr().err
        assert f"the plan {nursery.plan} is " in told
        assert "experiment again" in told
    assert place.names() == []


@pytest.mark.parametrize("stride", [97, pytest.param(1, marks=pytest.mark.faults)])
def test_no_wrong_byte_of_a_plan_is_overlooked(
    stride: int, tmp_path: Path, make_place: Callable[[str], Place], make_nursery: Callable[..., Nursery]
) -> None:
    whole = make_nursery(make_place("local"), 2).plan.read_bytes()
    path = tmp_path / "damaged"
    for position in range(0, len(whole), stride):
        damaged = bytearray(whole)
        damaged[position] ^= 0x41
        path.write_bytes(damaged)
        with pytest.raises(PlanFileError, match="is damaged"):
            read_plan(str(path))
        path.write_bytes(whole[:position])
        with pytest.raises(PlanFileError, match="is damaged"):
            read_plan(str(path))
    path.write_bytes(whole)
    assert json.dumps([step.name for step in read_plan(str(path)).steps]) == '["blob/0", "blob/1"]'
