"""Services that speak S3 in their own way: what they promise is found out before the first lease, and obeyed."""

import os
import threading
from pathlib import Path

import pytest

from marin_rules.state.step_lease import lease_path, open_lease, peek
from marin_rules.storage.explain import StorageError
from marin_rules.storage.leases.beside_objects import LeaseBesideObjects
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import LIFETIME_SECONDS
from marin_rules.storage.objects import open as open_module
from marin_rules.storage.objects import promises as promises_module
from marin_rules.storage.objects.gcs import GcsObjects
from marin_rules.storage.objects.promises import ADVISORY_VARIABLE, Promises, probe, require_promises
from marin_rules.storage.objects.s3 import S3Objects
from support.emulators.gcs.emulator import GcsEmulator
from support.emulators.s3.emulator import S3Emulator
from support.lease_models.clock import ManualClock, elsewhere

STEP = "s3://bucket/step-123456"
CEPH = ("refuses quoted ETags", "ignores conditions of DELETE")
IGNORANT = ("ignores If-Match", "ignores If-None-Match", "ignores conditions of DELETE")


@pytest.fixture(autouse=True)
def no_clients_of_earlier_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_module, "_local", threading.local())
    monkeypatch.delenv(ADVISORY_VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("quirks", "promises"),
    [
        ((), Promises()),
        (CEPH, Promises(deletes=False)),
        (("ignores If-Match",), Promises(replaces=False, deletes=False)),
        (("ignores If-None-Match",), Promises(creates=False)),
        (IGNORANT, Promises(creates=False, replaces=False, deletes=False)),
        (("refuses If-Match",), Promises(accepts=False)),
    ],
)
def test_what_a_store_promises(s3_here: S3Emulator, quirks: tuple[str, ...], promises: Promises) -> None:
    s3_here.set_quirks(*quirks)
    assert probe(S3Objects(STEP), STEP) == promises
    assert s3_here.names("bucket") == [] or not promises.accepts, "the probe is removed"


def test_google_promises_all(gcs_here: GcsEmulator) -> None:
    assert probe(GcsObjects("gs://bucket"), "gs://bucket/step") == Promises()
    assert gcs_here.names("bucket") == []


def test_lost_answers_condemn_no_store(s3_here: S3Emulator) -> None:
    s3_here.inject("lost", methods=["PUT"], probability=0.5, seed=3)
    assert require_promises(f"{STEP}/lock") == Promises()


@pytest.mark.parametrize(
    ("quirks", "told"),
    [
        (IGNORANT, "it ignores If-None-Match and If-Match"),
        (("ignores If-Match",), "it ignores If-Match"),
        (
            ("refuses If-Match",),
            "it refuses conditional writes (If-Match) of an object that is at the expected version",
        ),
    ],
)
def test_a_store_that_keeps_no_promises_is_refused_in_one_line(
    s3_here: S3Emulator, quirks: tuple[str, ...], told: str
) -> None:
    s3_here.set_quirks(*quirks)
    lease = open_lease(STEP, Owner.current())
    with pytest.raises(StorageError) as caught:
        lease.try_acquire()
    text = str(caught.value)
    assert text.startswith("cannot keep leases in s3://bucket: ")
    assert told in text
    assert (ADVISORY_VARIABLE in text) is ("ignores" in told)
    assert "\n" not in text
    assert lease_path(STEP).removeprefix("s3://bucket/") not in s3_here.names("bucket")
    s3_here.set_quirks()
    assert lease.try_acquire() is None, "a store that was mended is noticed"


def test_advisory_leases_when_asked_for(s3_here: S3Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_here.set_quirks(*IGNORANT)
    monkeypatch.setenv(ADVISORY_VARIABLE, "1")
    told: list[str] = []
    require_promises(f"{STEP}/lock", say=told.append)
    assert len(told) == 1
    assert told[0].startswith(f"leases in s3://bucket are advisory ({ADVISORY_VARIABLE}=1)")
    one, other = open_lease(STEP, elsewhere("alpha")), open_lease(STEP, elsewhere("beta"))
    assert one.try_acquire() is None
    assert other.try_acquire() == one.record, "one after the other, they see each other"
    other.release()
    one.refresh()
    one.commit(f"{STEP}/.executor_status", b"RUNNING")
    one.release()
    assert other.try_acquire() is None


def test_an_answer_is_remembered_for_the_process_and_the_next_ones(
    s3_here: S3Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        require_promises(f"{STEP}/lock")
    asked = len(s3_here.calls())
    assert 0 < asked <= 12
    monkeypatch.setattr(promises_module, "_known", {})
    require_promises("s3://bucket/another/lock")
    assert len(s3_here.calls()) == asked
    for path in Path(os.environ["XDG_STATE_HOME"]).rglob("*.json"):
        path.write_text("{")
    monkeypatch.setattr(promises_module, "_known", {})
    require_promises(f"{STEP}/lock")
    assert len(s3_here.calls()) > asked, "a spoilt file is no answer"


def test_the_whole_life_of_a_lease_as_on_ceph(s3_here: S3Emulator) -> None:
    s3_here.set_quirks(*CEPH)
    one, other = open_lease(STEP, elsewhere("alpha")), open_lease(STEP, elsewhere("beta"))
    assert one.try_acquire() is None
    one.refresh()
    assert other.try_acquire() == one.record
    assert one.read(f"{STEP}/.executor_status") is None
    one.commit(f"{STEP}/.executor_status", b"RUNNING")
    one.overwrite(f"{STEP}/.executor_status", b"SUCCESS")
    one.release()
    assert peek(STEP) is None
    assert other.try_acquire() is None
    assert other.taken_from is None, "it was free"
    assert other.record is not None
    assert other.record.epoch == 1


def test_a_late_release_leaves_the_lease_of_a_successor_where_delete_ignores_conditions(s3_here: S3Emulator) -> None:
    s3_here.set_quirks("ignores conditions of DELETE")
    clock = ManualClock()

    def lease(name: str) -> Lease:
        store = LeaseBesideObjects(S3Objects(STEP), lease_path(STEP), lambda objects: (objects, False))
        return Lease(store, elsewhere(name), clock)

    late, successor = lease("alpha"), lease("beta")
    assert late.try_acquire() is None
    assert successor.try_acquire() is not None
    clock.advance(LIFETIME_SECONDS)
    assert successor.try_acquire() is None
    late.release()
    assert peek(STEP) == successor.record
    successor.refresh()
