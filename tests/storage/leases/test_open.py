"""The lease at a path: on which store it is, and how long it lives."""

import threading
from pathlib import Path

import pytest

from marin_rules.errors import SettingsError
from marin_rules.storage.leases.beside_objects import LeaseBesideObjects
from marin_rules.storage.leases.local import LocalLeaseStore
from marin_rules.storage.leases.open import LIFETIME_VARIABLE, lease_lifetime, open_lease_at
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import LIFETIME_SECONDS
from marin_rules.storage.objects import open as open_module


@pytest.mark.parametrize("text", [None, ""])
def test_a_lease_lives_ninety_seconds(text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIFETIME_VARIABLE, raising=False)
    if text is not None:
        monkeypatch.setenv(LIFETIME_VARIABLE, text)
    assert lease_lifetime() == LIFETIME_SECONDS == 90.0


@pytest.mark.parametrize("text", ["1", "2.5", "86400"])
def test_the_environment_may_set_another_lifetime(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIFETIME_VARIABLE, text)
    lease = open_lease_at(str(tmp_path / "lease"), Owner.current())
    assert lease.lifetime == float(text)
    assert lease.try_acquire() is None
    assert lease.record is not None
    assert lease.record.lifetime == float(text)


@pytest.mark.parametrize("text", ["0", "0.9", "-5", "86401", "nan", "inf", "1m"])
def test_a_lifetime_that_is_none_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIFETIME_VARIABLE, text)
    with pytest.raises(SettingsError, match=f"{LIFETIME_VARIABLE} is '{text}': write a number of seconds"):
        lease_lifetime()


def test_a_path_has_a_lease_file_and_a_url_a_lease_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_module, "_local", threading.local())
    assert isinstance(open_lease_at(str(tmp_path / "lease"), Owner.current())._store, LocalLeaseStore)
    lease = open_lease_at("memory://bucket/step/lease", Owner.current())
    assert isinstance(lease._store, LeaseBesideObjects)
    assert lease._store.path == "memory://bucket/step/lease"
