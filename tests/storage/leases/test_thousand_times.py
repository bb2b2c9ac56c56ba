"""What must never fail, a thousand times: late releases leave a successor's lease, and lost answers do no harm."""

import contextlib
import random
import time
from pathlib import Path

import pytest

from marin_rules.storage.explain import UnansweredError
from marin_rules.storage.leases.beside_objects import LeaseBesideObjects
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.record import LIFETIME_SECONDS
from marin_rules.storage.leases.store import LeaseStore
from marin_rules.storage.objects.gcs import GcsObjects
from marin_rules.storage.objects.s3 import S3Objects
from marin_rules.storage.objects.store import ObjectStore
from support.emulators.common.emulator import Emulator
from support.emulators.gcs.emulator import GcsEmulator
from support.emulators.s3.emulator import S3Emulator
from support.lease_models.backends import Backend, local_backend
from support.lease_models.clock import ManualClock, elsewhere
from support.lease_models.holders import held, holder_of
from support.lease_models.memory import FencedStore, MemoryObjects, RepeatingObjects
from support.lease_models.sessions import UnreliableObjects, complete, unreliable_store
from support.lease_models.unreliable import UnreliableStore

THOUSAND = 1000


def release_late(backend: Backend, clock: ManualClock, chance: random.Random) -> None:
    """A worker loses its lease in one of many ways, and gives it back when a successor has it."""
    unreliable = UnreliableStore(backend.open_store())
    old = held(unreliable, clock, "alpha")
    for _ in range(chance.randrange(3)):
        if chance.random() < 0.5:
            unreliable.failures = ["answer lost", "not made"]
        with contextlib.suppress(UnansweredError):
            old.refresh()
    new = Lease(backend.open_store(), elsewhere("beta"), clock)
    assert new.try_acquire() is not None
    clock.advance(LIFETIME_SECONDS)
    assert new.try_acquire() is None
    if chance.random() < 0.5:
        new.release()
        new = held(backend.open_store(), clock, "gamma")
    for _ in range(chance.randrange(3)):
        new.refresh()
    if chance.random() < 0.5:
        with pytest.raises(LeaseLostError):
            old.commit(backend.status_path, b"SUCCESS")
    old.release()
    assert holder_of(backend.open_store()) == new.record
    new.refresh()
    new.release()
    assert backend.open_store().read() is None


def test_late_releases(backend: Backend, clock: ManualClock) -> None:
    chance = random.Random(1)
    for _ in range(10):
        release_late(backend, clock, chance)


@pytest.mark.faults
def test_a_thousand_late_releases(backend: Backend, clock: ManualClock) -> None:
    chance = random.Random(2)
    for _ in range(THOUSAND):
        release_late(backend, clock, chance)


def lose_answers_in_memory(kind: str, seed: int) -> int:
    """A whole session in which a quarter of the calls gets no answer; how many those were."""
    chance, clock, store = random.Random(seed), ManualClock(), FencedStore()
    if kind == "fenced":
        unreliable = unreliable_store(store, chance, 0.25)
        planned = list(unreliable.failures)
        complete(Lease(unreliable, elsewhere("alpha"), clock), "status")
        assert store.data is None
        assert store.files == {"status": b"SUCCESS"}
        return sum(failure != "ok" for failure in planned[: len(planned) - len(unreliable.failures)])
    objects = UnreliableObjects(MemoryObjects() if kind == "numbered" else RepeatingObjects(), chance, 0.25)
    complete(Lease(LeaseBesideObjects(objects, "lease"), elsewhere("alpha"), clock), "status", b"RUNNING")
    assert objects.read("lease") is None
    found = objects.read("status")
    assert found is not None
    assert found.data == b"SUCCESS"
    return objects.losses


@pytest.mark.parametrize("kind", ["fenced", "numbered", "repeating"])
def test_lost_answers_in_a_thousand_sessions(kind: str) -> None:
    assert sum(lose_answers_in_memory(kind, seed) for seed in range(THOUSAND)) > THOUSAND


@pytest.mark.faults
def test_lost_answers_in_a_thousand_sessions_on_files(tmp_path: Path) -> None:
    for seed in range(THOUSAND):
        backend = local_backend(tmp_path / str(seed))
        unreliable: LeaseStore = unreliable_store(backend.open_store(), random.Random(seed), 0.25)
        complete(Lease(unreliable, elsewhere("alpha"), ManualClock()), backend.status_path)
        assert backend.open_store().read() is None
        assert backend.read_file(backend.status_path) == b"SUCCESS"


def lose_answers_of_an_emulator(emulator: Emulator, scheme: str, objects: ObjectStore, sessions: int) -> None:
    """Answers are lost on the wire, and the store's own client asks again, or gives up."""
    emulator.inject("lost", methods=("POST", "PUT", "DELETE"), probability=0.25, seed=1)
    for number in range(sessions):
        step = f"step-{number}"
        lease_store = LeaseBesideObjects(objects, f"{scheme}://bucket/{step}/lease")
        complete(Lease(lease_store, elsewhere("alpha"), ManualClock()), f"{scheme}://bucket/{step}/status")
        assert emulator.get("bucket", f"{step}/lease") is None
        assert emulator.get("bucket", f"{step}/status") == b"SUCCESS"
        # Once: nothing was written twice because an answer was lost.
        assert emulator.history("bucket", f"{step}/status").count(b"SUCCESS") == 1


@pytest.mark.parametrize("sessions", [5, pytest.param(THOUSAND, marks=pytest.mark.faults)])
def test_lost_answers_of_gcs(gcs_here: GcsEmulator, monkeypatch: pytest.MonkeyPatch, sessions: int) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    lose_answers_of_an_emulator(gcs_here, "gs", GcsObjects("gs://bucket"), sessions)


@pytest.mark.parametrize("sessions", [5, pytest.param(THOUSAND, marks=pytest.mark.faults)])
def test_lost_answers_of_s3(s3_here: S3Emulator, monkeypatch: pytest.MonkeyPatch, sessions: int) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    lose_answers_of_an_emulator(s3_here, "s3", S3Objects("s3://bucket"), sessions)
