"""Leases in files: locks on inodes, directories that vanish, disks that are full."""

import errno
import fcntl
import os
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_rules.state.status import Status, read_status, status_path
from marin_rules.state.step_lease import lease_path, peek
from marin_rules.storage.explain import StorageError, UnansweredError
from marin_rules.storage.leases import local
from marin_rules.storage.leases.clock import SystemClock
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.local import LocalLeaseStore
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import CorruptLeaseError

DEADLINE = 30.0
"""Seconds after which a test that waits for a process or thread has failed. Not reached when all is well."""

# A forked child here calls the system and nothing that another thread could have locked.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def output_path(tmp_path: Path) -> str:
    return str(tmp_path / "step-123456")


def lease_on(output_path: str) -> Lease:
    return Lease(LocalLeaseStore(lease_path(output_path)), Owner.current(), SystemClock())


def held(output_path: str) -> Lease:
    lease = lease_on(output_path)
    assert lease.try_acquire() is None
    return lease


def test_the_lease_directory_is_made_and_only_the_lease_is_left_in_it(output_path: str) -> None:
    lease = held(output_path)
    lease.refresh()
    assert os.listdir(output_path) == [".executor_status.lock"]
    lease.commit(status_path(output_path), Status.SUCCESS.encode())
    assert sorted(os.listdir(output_path)) == [".executor_status", ".executor_status.lock"]
    lease.release()
    assert os.listdir(output_path) == [".executor_status"]
    assert read_status(output_path) is Status.SUCCESS


def test_a_refused_change_leaves_no_temporary_file(output_path: str) -> None:
    store = LocalLeaseStore(lease_path(output_path))
    assert store.create(b"one") is not None
    assert store.create(b"two") is None
    assert store.replace(b"two", b"none") is None
    assert not store.commit(b"none", status_path(output_path), b"SUCCESS")
    assert os.listdir(output_path) == [".executor_status.lock"]


def test_a_removed_directory_is_a_lost_lease_and_stays_removed(output_path: str) -> None:
    refresh = held(output_path)
    shutil.rmtree(output_path)
    with pytest.raises(LeaseLostError, match="removed") as caught:
        refresh.refresh()
    assert caught.value.holder is None
    commit = held(output_path)
    shutil.rmtree(output_path)
    with pytest.raises(LeaseLostError, match="removed"):
        commit.commit(status_path(output_path), b"SUCCESS")
    release = held(output_path)
    shutil.rmtree(output_path)
    release.release()
    assert peek(output_path) is None
    assert not os.path.exists(output_path)


@pytest.mark.parametrize("call", ["link", "replace", "unlink"])
def test_a_directory_removed_in_the_middle_of_a_change(
    output_path: str, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = LocalLeaseStore(lease_path(output_path))
    version = None if call == "link" else store.create(b"one")
    real = getattr(os, call)

    def remove_and_call(*arguments: str) -> None:
        monkeypatch.undo()
        shutil.rmtree(output_path)
        real(*arguments)

    monkeypatch.setattr(os, call, remove_and_call)
    if version is None:
        assert store.create(b"one") is None
    elif call == "replace":
        assert not store.commit(version, status_path(output_path), b"SUCCESS")
    else:
        assert not store.delete(version)
    assert not os.path.exists(output_path)


def test_a_directory_removed_while_it_is_acquired_is_made_again(
    output_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_link = os.link

    def remove_and_link(source: str, destination: str) -> None:
        monkeypatch.undo()
        shutil.rmtree(output_path)
        real_link(source, destination)

    monkeypatch.setattr(os, "link", remove_and_link)
    held(output_path)
    assert os.listdir(output_path) == [".executor_status.lock"]


def test_a_file_in_the_place_of_the_directory_is_an_error_not_a_wait(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for output_path in (tmp_path / "file", tmp_path / "file" / "step"):
        with pytest.raises(OSError, match=str(tmp_path / "file")):
            lease_on(str(output_path)).try_acquire()


@pytest.mark.parametrize("change", ["replace", "delete", "commit"])
@pytest.mark.parametrize("successor", ["another", "none", "equal"])
def test_who_waited_for_the_lock_of_a_replaced_file_starts_again(
    output_path: str, monkeypatch: pytest.MonkeyPatch, change: str, successor: str
) -> None:
    store, path = LocalLeaseStore(lease_path(output_path)), lease_path(output_path)
    assert store.create(b"one") is not None
    waits, real_flock, answers = threading.Event(), fcntl.flock, list[object]()

    def noted_flock(descriptor: int, operation: int) -> None:
        try:
            real_flock(descriptor, operation)
        except BlockingIOError:
            waits.set()
            raise

    def make_change() -> None:
        if change == "replace":
            answers.append(store.replace(b"mine", b"one"))
        elif change == "delete":
            answers.append(store.delete(b"one"))
        else:
            answers.append(store.commit(b"one", status_path(output_path), b"SUCCESS"))

    holder = os.open(path, os.O_RDWR)
    real_flock(holder, fcntl.LOCK_EX)
    monkeypatch.setattr(fcntl, "flock", noted_flock)
    waiter = threading.Thread(target=make_change)
    waiter.start()
    assert waits.wait(DEADLINE)
    # The waiter has opened the file that is now replaced, and gets the lock on that.
    if successor == "none":
        os.unlink(path)
    else:
        Path(path + ".new").write_bytes(b"two" if successor == "another" else b"one")
        os.replace(path + ".new", path)
    os.close(holder)
    waiter.join(DEADLINE)

    if successor == "equal":
        assert answers == [b"mine" if change == "replace" else True]
        return
    assert answers == [None if change == "replace" else False]
    assert read_status(output_path) is None
    snapshot = store.read()
    assert (None if snapshot is None else snapshot.data) == (b"two" if successor == "another" else None)


def test_no_takeover_between_the_check_and_the_end_of_a_commit(
    output_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lease_path(output_path)
    assert LocalLeaseStore(path).create(b"one") is not None
    real_replace, is_locked = os.replace, list[bool]()

    def replace_and_look(source: str, destination: str) -> None:
        descriptor = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked.append(False)
        except BlockingIOError:
            is_locked.append(True)
        finally:
            os.close(descriptor)
        real_replace(source, destination)

    monkeypatch.setattr(os, "replace", replace_and_look)
    assert LocalLeaseStore(path).commit(b"one", status_path(output_path), b"RUNNING")
    assert LocalLeaseStore(path).replace(b"two", b"one")
    assert is_locked == [True, True]


@pytest.mark.processes
def test_a_child_forked_in_the_middle_of_a_commit_does_not_keep_the_lock(
    output_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real_replace = lease_path(output_path), os.replace
    assert LocalLeaseStore(path).create(b"one") is not None
    children: list[int] = []

    def fork_and_replace(source: str, destination: str) -> None:
        children.append(os.fork())
        if children[-1] == 0:
            signal.pause()
        real_replace(source, destination)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", fork_and_replace)
            assert LocalLeaseStore(path).commit(b"one", status_path(output_path), b"RUNNING")
        descriptor = os.open(path, os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_a_file_system_that_cannot_keep_leases_is_named(output_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalLeaseStore(lease_path(output_path))

    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        with pytest.raises(StorageError, match=f"{output_path}.*no hard links.*MARIN_PREFIX"):
            store.create(b"one")
    assert os.listdir(output_path) == []
    assert store.create(b"one") is not None
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StorageError, match=f"{output_path}.*no file locks.*MARIN_PREFIX"):
        store.delete(b"one")


def test_a_link_that_nfs_made_and_then_found_is_our_own(output_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real_link = os.link

    def link_twice(source: str, destination: str) -> None:
        real_link(source, destination)
        real_link(source, destination)

    monkeypatch.setattr(os, "link", link_twice)
    store = LocalLeaseStore(lease_path(output_path))
    assert store.create(b"one") is not None
    assert store.create(b"two") is None


def test_a_file_that_nfs_calls_stale_is_looked_up_again(output_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, real_flock, stale = LocalLeaseStore(lease_path(output_path)), fcntl.flock, [True, True]
    assert store.create(b"one") is not None

    def stale_flock(descriptor: int, operation: int) -> None:
        if stale:
            stale.pop()
            raise OSError(errno.ESTALE, "Stale file handle")
        real_flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", stale_flock)
    assert store.delete(b"one")
    assert store.read() is None


def test_a_full_disk_is_no_lost_lease(output_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalLeaseStore(lease_path(output_path))
    lease = held(output_path)
    before = store.read()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(StorageError, match="no space left"):
            lease.refresh()
        with pytest.raises(StorageError, match="no space left"):
            lease.commit(status_path(output_path), b"SUCCESS")
    assert os.listdir(output_path) == [".executor_status.lock"]
    assert store.read() == before
    lease.refresh()
    lease.commit(status_path(output_path), b"SUCCESS")


def test_an_object_store_needs_a_store_of_its_own() -> None:
    with pytest.raises(ValueError, match="gs://bucket"):
        LocalLeaseStore("gs://bucket/step/.executor_status.lock")


def test_peek_reads_and_changes_nothing(output_path: str) -> None:
    assert peek(output_path) is None
    assert not os.path.exists(output_path)
    lease = held(output_path)
    assert peek(output_path) == lease.record
    assert os.listdir(output_path) == [".executor_status.lock"]
    Path(lease_path(output_path)).write_bytes(b'{"worker_id"')
    with pytest.raises(CorruptLeaseError, match=f"{lease_path(output_path)}.*[Dd]elete"):
        peek(output_path)


def test_one_thread_refreshes_while_another_commits(output_path: str) -> None:
    lease = held(output_path)
    is_done, errors = threading.Event(), list[BaseException]()

    def beat() -> None:
        try:
            while not is_done.is_set():
                lease.refresh()
        except BaseException as error:
            errors.append(error)

    heart = threading.Thread(target=beat)
    heart.start()
    for _ in range(50):
        lease.commit(status_path(output_path), b"RUNNING")
    is_done.set()
    heart.join(DEADLINE)
    lease.release()
    assert errors == []
    assert os.listdir(output_path) == [".executor_status"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o600), (0o027, 0o600), (0o002, 0o660), (0o000, 0o666)])
def test_who_may_not_write_a_lease_may_not_read_it_either(output_path: str, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        lease = held(output_path)
        for _ in range(2):
            assert stat.S_IMODE(os.stat(lease_path(output_path)).st_mode) == mode
            lease.refresh()
    finally:
        os.umask(before)


@pytest.mark.processes
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_somebody_else_cannot_lock_a_lease_but_sees_whose_it_is() -> None:
    folder = Path(tempfile.mkdtemp())  # Others cannot enter pytest's own.
    folder.chmod(0o755)
    output_path = str(folder / "step-123456")
    before = os.umask(0o022)
    try:
        lease = held(output_path)
        assert as_nobody(lambda: describe_from_outside(output_path)) == "cannot be opened; a worker of root, True"
        lease.refresh()
    finally:
        os.umask(before)
        shutil.rmtree(folder)


def describe_from_outside(output_path: str) -> str:
    with pytest.raises(PermissionError):
        os.open(lease_path(output_path), os.O_RDONLY)
    holder = lease_on(output_path).try_acquire()
    return f"cannot be opened; {holder.worker_id if holder else None}, {holder == peek(output_path)}"


def as_nobody(work: Callable[[], str]) -> str:
    """What `work` returns in a process of another user."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(write, work().encode())
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def test_a_lock_that_somebody_keeps_is_waited_for_only_so_long(
    output_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_LOCK_SECONDS", 0.2)
    lease = held(output_path)
    descriptor = os.open(lease_path(output_path), os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    told = f"cannot change the lease {lease_path(output_path)}: another process has had a file lock on it"
    try:
        for change in (lease.refresh, lambda: lease.commit(status_path(output_path), b"RUNNING"), lease.release):
            with pytest.raises(UnansweredError) as caught:
                change()
            assert str(caught.value).startswith(told)
            assert "`fuser -v" in str(caught.value)
    finally:
        os.close(descriptor)
    lease.refresh()
    assert os.listdir(output_path) == [".executor_status.lock"]
