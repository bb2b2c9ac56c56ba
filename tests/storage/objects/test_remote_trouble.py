"""What goes wrong between us and a store, told so that a person or a lease can act: refused, or not answered."""

import time
from collections.abc import Callable

import pytest

from marin_rules.storage.explain import StorageError, UnansweredError
from marin_rules.storage.leases.record import LIFETIME_SECONDS
from marin_rules.storage.objects import gcs, s3
from marin_rules.storage.objects.store import ObjectStore, StoredObject
from support.emulators.s3.emulator import S3Emulator
from support.lease_models.remote import Remote

CALLS: dict[str, Callable[[ObjectStore, str], object]] = {
    "read": lambda objects, url: objects.read(url),
    "write": lambda objects, url: objects.write(url, b"two", None),
    "put": lambda objects, url: objects.put(url, b"two"),
    "delete": lambda objects, url: objects.delete(url, "1"),
    "modified": lambda objects, url: objects.modified(url),
}


def refused_text(remote: Remote, call: str, kind: type[StorageError] = StorageError) -> str:
    """What is said of a call that fails; on one line, and with the place."""
    url = f"{remote.bucket}/step/.executor_status"
    objects = remote.open()
    with pytest.raises(StorageError) as caught:
        CALLS[call](objects, url)
    assert type(caught.value) is kind
    text = str(caught.value)
    assert url in text
    assert "\n" not in text
    assert caught.value.__cause__ is not None
    return text


@pytest.mark.parametrize("call", CALLS)
def test_without_permission(remote: Remote, call: str) -> None:
    remote.emulator.inject(403)
    text = refused_text(remote, call)
    assert "permission denied" in text
    assert "Ask for read and write access to the bucket bucket" in text


@pytest.mark.parametrize("call", ["read", "write"])
def test_with_credentials_that_are_not_accepted(remote: Remote, call: str) -> None:
    remote.emulator.inject(401)
    text = refused_text(remote, call)
    assert "no valid credentials" in text
    assert ("gcloud auth" if remote.scheme == "gs" else "aws configure") in text


@pytest.mark.parametrize("call", ["write", "put"])
def test_a_bucket_that_is_not_there(remote: Remote, call: str) -> None:
    with pytest.raises(StorageError, match="there is no bucket nowhere") as caught:
        CALLS[call](remote.open(), f"{remote.scheme}://nowhere/a")
    assert type(caught.value) is StorageError


@pytest.mark.parametrize("call", ["read", "write", "delete"])
@pytest.mark.parametrize("code", [429, 503])
def test_a_store_that_asks_for_patience(remote: Remote, call: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    remote.emulator.inject(code)
    be_quick(remote, monkeypatch)
    text = refused_text(remote, call, UnansweredError)
    assert f"the store answered {code}" in text


@pytest.mark.parametrize("call", ["read", "write", "delete"])
def test_a_connection_that_is_cut(remote: Remote, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remote.emulator.inject("cut")
    be_quick(remote, monkeypatch)
    text = refused_text(remote, call, UnansweredError)
    assert "no answer from the store" in text
    assert "Check the network" in text


@pytest.mark.parametrize("call", ["read", "write"])
def test_a_store_that_hangs(remote: Remote, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remote.emulator.inject("hang")
    be_quick(remote, monkeypatch)
    begun = time.monotonic()
    assert "no answer from the store" in refused_text(remote, call, UnansweredError)
    assert time.monotonic() - begun < 10


def test_the_patience_of_gcs_leaves_a_heartbeat_time_for_another_try() -> None:
    """Beats come every third of a lifetime, and the lease counts as lost a third later; see `heartbeat`."""
    connect, read = gcs._TIMEOUT_SECONDS
    assert gcs._RETRY_SECONDS + connect + read <= LIFETIME_SECONDS / 3


def test_the_patience_of_s3_leaves_a_heartbeat_time_for_another_try() -> None:
    assert s3._ATTEMPTS * s3._READ_SECONDS <= LIFETIME_SECONDS / 3


@pytest.mark.parametrize("trouble", [503, "cut"])
@pytest.mark.parametrize("call", ["read", "write"])
def test_trouble_that_passes_is_not_noticed(
    remote: Remote, call: str, trouble: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    objects = remote.open()
    remote.emulator.put("bucket", "a", b"one")
    remote.emulator.inject(trouble, times=1)
    if call == "read":
        found = objects.read(f"{remote.bucket}/a")
        assert found is not None
        assert found.data == b"one"
    else:
        assert objects.write(f"{remote.bucket}/b", b"two", None) is not None
        assert remote.held("b") == b"two"


def test_a_download_that_breaks_off_gives_no_half_content(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    be_quick(remote, monkeypatch)
    remote.emulator.put("bucket", "a", b"x" * 10_000)
    remote.emulator.inject("cut_body", times=1)
    try:
        found = remote.open().read(f"{remote.bucket}/a")
        assert found is not None
        assert found.data == b"x" * 10_000
    except UnansweredError:
        pass
    remote.emulator.clear_faults()
    remote.emulator.inject("cut_body")
    with pytest.raises(UnansweredError):
        remote.open().read(f"{remote.bucket}/a")


def test_a_write_whose_answer_is_lost_is_made_and_may_be_called_refused(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client asks again, and finds its own write in the way. A lease therefore looks before it believes."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    objects, url = remote.open(), f"{remote.bucket}/a"
    remote.emulator.inject("lost", methods=["POST", "PUT"], times=1)
    assert objects.write(url, b"mine", None) is None
    found = objects.read(url)
    assert found is not None
    assert found.data == b"mine"
    assert len(remote.emulator.history("bucket", "a")) == 1


def test_two_conditional_writes_at_the_same_moment_are_tried_again(s3_here: S3Emulator) -> None:
    """S3 answers 409 to one of them: not made, but worth another try."""
    objects = s3.S3Objects("s3://bucket")
    s3_here.inject(409, methods=["PUT"], times=1)
    with pytest.raises(UnansweredError, match="409"):
        objects.write("s3://bucket/a", b"one", None)
    version = objects.write("s3://bucket/a", b"one", None)
    assert version is not None
    assert objects.read("s3://bucket/a") == StoredObject(b"one", version)


def be_quick(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that are made from now on have little patience, and do not pause between their attempts."""
    monkeypatch.setattr(gcs, "_TIMEOUT_SECONDS", (5.0, 0.3))
    monkeypatch.setattr(gcs, "_RETRY_SECONDS", 0.2)
    monkeypatch.setattr(s3, "_READ_SECONDS", 0.3)
    monkeypatch.setattr(s3, "_ATTEMPTS", 2)
    if remote.scheme == "s3":
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
