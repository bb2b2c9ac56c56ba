"""The contract of what keeps a lease: created once, changed only at the version one has seen, on every store."""

import pytest

from marin_rules.storage.leases.store import ChangedError, Snapshot
from support.lease_models.backends import Backend


def test_a_store_is_created_once(backend: Backend) -> None:
    one, other = backend.open_store(), backend.open_store()
    assert one.read() is None
    version = one.create(b"one")
    assert version is not None
    assert other.create(b"other") is None
    assert other.read() == Snapshot(b"one", version)


def test_the_path_is_the_one_that_people_find_the_lease_at(backend: Backend) -> None:
    store = backend.open_store()
    assert store.path == backend.lease_path
    assert store.path.endswith("/.executor_status.lock")


def test_a_store_changes_only_at_the_version_given(backend: Backend) -> None:
    one, other = backend.open_store(), backend.open_store()
    first = one.create(b"first")
    assert first is not None
    second = one.replace(b"second", first)
    assert second is not None
    assert second != first

    assert other.replace(b"third", first) is None
    assert not other.delete(first)
    assert not other.commit(first, backend.status_path, b"FAILED")
    assert other.read() == Snapshot(b"second", second)
    assert backend.read_file(backend.status_path) is None

    assert other.commit(second, backend.status_path, b"SUCCESS")
    assert backend.read_file(backend.status_path) == b"SUCCESS"
    assert other.delete(second)


def test_a_deleted_store_takes_only_a_creation(backend: Backend) -> None:
    store = backend.open_store()
    version = store.create(b"one")
    assert version is not None
    assert store.delete(version)
    assert store.read() is None
    assert store.replace(b"two", version) is None
    store.delete(version)  # S3 calls it deleted, the others say that there was nothing: either is true.
    assert not store.commit(version, backend.status_path, b"SUCCESS")
    assert store.read() is None
    assert backend.read_file(backend.status_path) is None
    assert store.create(b"three") is not None


@pytest.mark.parametrize("data", [b"", b"\0\r\n\xff", b"x" * 100_000])
def test_any_bytes_come_back_as_they_were_written(backend: Backend, data: bytes) -> None:
    store = backend.open_store()
    version = store.create(data)
    assert version is not None
    assert store.read() == Snapshot(data, version)
    assert store.commit(version, backend.status_path, data)
    assert store.read_beside(backend.status_path) == data


def test_a_file_beside_the_lease_is_read_whole_or_absent(backend: Backend) -> None:
    store = backend.open_store()
    assert store.read_beside(backend.status_path) is None
    backend.put_file(backend.status_path, b"RUNNING")
    assert store.read_beside(backend.status_path) == b"RUNNING"


def test_a_commit_relies_on_the_file_as_it_was_last_read_or_written(backend: Backend) -> None:
    store = backend.open_store()
    version = store.create(b"one")
    assert version is not None
    assert store.read_beside(backend.status_path) is None
    assert store.commit(version, backend.status_path, b"RUNNING")
    assert store.commit(version, backend.status_path, b"SUCCESS")
    backend.put_file(backend.status_path, b"FAILED")
    if backend.is_fenced:
        # The lease itself is compared, and nobody else may write without it.
        assert store.commit(version, backend.status_path, b"RUNNING")
        return
    for _ in range(2):
        with pytest.raises(ChangedError, match="executor_status"):
            store.commit(version, backend.status_path, b"RUNNING")
    assert backend.read_file(backend.status_path) == b"FAILED"
    assert store.read_beside(backend.status_path) == b"FAILED"
    assert store.commit(version, backend.status_path, b"RUNNING")


def test_a_file_that_appeared_or_went_since_it_was_read_is_a_changed_one(comparing_backend: Backend) -> None:
    store = comparing_backend.open_store()
    version = store.create(b"one")
    assert version is not None
    assert store.read_beside(comparing_backend.status_path) is None
    comparing_backend.put_file(comparing_backend.status_path, b"SUCCESS")
    with pytest.raises(ChangedError):
        store.commit(version, comparing_backend.status_path, b"RUNNING")
    assert comparing_backend.read_file(comparing_backend.status_path) == b"SUCCESS"


def test_a_lease_that_is_not_ours_is_told_before_a_changed_file(backend: Backend) -> None:
    store, other = backend.open_store(), backend.open_store()
    version = store.create(b"one")
    assert version is not None
    store.read_beside(backend.status_path)
    newer = other.replace(b"two", version)
    assert newer is not None
    other.read_beside(backend.status_path)
    assert other.commit(newer, backend.status_path, b"RUNNING")
    assert not store.commit(version, backend.status_path, b"SUCCESS")
    assert backend.read_file(backend.status_path) == b"RUNNING"


def test_two_files_beside_a_lease_are_compared_each_for_itself(backend: Backend) -> None:
    store, log = backend.open_store(), backend.status_path.replace("_status", "_log")
    version = store.create(b"one")
    assert version is not None
    assert store.commit(version, backend.status_path, b"RUNNING")
    assert store.commit(version, log, b"line")
    assert store.commit(version, backend.status_path, b"SUCCESS", durable=False)
    assert store.commit(version, log, b"line, line", durable=False)
    assert backend.read_file(log) == b"line, line"
