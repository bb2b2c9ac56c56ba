"""Who is dead: certain for a process of this machine, and never guessed."""

import ctypes
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from marin_rules.state.step_lease import lease_path, peek
from marin_rules.storage.leases import owner as owner_module
from marin_rules.storage.leases.clock import SystemClock
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.local import LocalLeaseStore
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import LeaseRecord

DEADLINE = 30.0
"""Seconds after which a test that waits for a process or thread has failed. Not reached when all is well."""

fork = multiprocessing.get_context("fork")

# A forked child here calls the system and nothing that another thread could have locked.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def output_path(tmp_path: Path) -> str:
    return str(tmp_path / "step-123456")


@dataclass(frozen=True)
class Holder:
    """A real process that has taken a lease and now does nothing."""

    process: BaseProcess
    record: LeaseRecord

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def kill_and_leave_as_zombie(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def kill_and_reap(self) -> None:
        self.process.kill()
        self.process.join(DEADLINE)


def hold_forever(output_path: str, connection: Connection) -> None:
    # A name that looks like the end of the name and a state in /proc/<pid>/stat.
    Path("/proc/self/comm").write_text("a) Z (b")
    lease = Lease(LocalLeaseStore(lease_path(output_path)), Owner.current(), SystemClock())
    assert lease.try_acquire() is None
    connection.send(lease.record)
    signal.pause()


@pytest.fixture
def other_process(output_path: str) -> Iterator[Holder]:
    receiving, sending = fork.Pipe(duplex=False)
    process = fork.Process(target=hold_forever, args=(output_path, sending))
    process.start()
    assert receiving.poll(DEADLINE)
    holder = Holder(process, receiving.recv())
    yield holder
    process.kill()
    process.join(DEADLINE)


def test_an_owner_is_this_process() -> None:
    owner = Owner.current()
    assert owner.pid == os.getpid()
    assert owner.worker_id.startswith(f"{owner.host}-{owner.pid}-")
    assert Owner.current().worker_id != owner.worker_id
    assert not owner.is_dead_here()


@pytest.mark.processes
def test_a_living_process_keeps_its_lease(output_path: str, other_process: Holder) -> None:
    lease = Lease(LocalLeaseStore(lease_path(output_path)), Owner.current(), SystemClock())
    assert lease.try_acquire() == other_process.record
    os.kill(other_process.pid, signal.SIGSTOP)
    assert lease.try_acquire() == other_process.record


@pytest.mark.processes
@pytest.mark.parametrize("death", ["kill_and_leave_as_zombie", "kill_and_reap"])
def test_the_lease_of_a_dead_process_is_taken_over_at_once(output_path: str, other_process: Holder, death: str) -> None:
    lease = Lease(LocalLeaseStore(lease_path(output_path)), Owner.current(), SystemClock())
    assert lease.try_acquire() == other_process.record
    getattr(other_process, death)()
    assert lease.try_acquire() is None
    record = peek(output_path)
    assert record == lease.record
    assert record is not None
    assert record.epoch == 2


def hold_in_another_thread(output_path: str, connection: Connection) -> None:
    threading.Thread(target=hold_until_told, args=(output_path, connection)).start()
    ctypes.CDLL(None).pthread_exit(None)


def hold_until_told(output_path: str, connection: Connection) -> None:
    lease = Lease(LocalLeaseStore(lease_path(output_path)), Owner.current(), SystemClock())
    assert lease.try_acquire() is None
    connection.send(lease.record)
    connection.recv()


@pytest.mark.processes
def test_a_process_is_not_dead_before_its_last_thread(output_path: str) -> None:
    """When the first thread ends, the process looks like a zombie in /proc."""
    ours, theirs = fork.Pipe()
    process = fork.Process(target=hold_in_another_thread, args=(output_path, theirs))
    process.start()
    try:
        assert ours.poll(DEADLINE)
        owner = ours.recv().owner
        last_moment = time.monotonic() + DEADLINE
        while " Z " not in Path(f"/proc/{owner.pid}/stat").read_text() and time.monotonic() < last_moment:
            os.sched_yield()
        assert " Z " in Path(f"/proc/{owner.pid}/stat").read_text()
        assert not owner.is_dead_here()
        os.kill(owner.pid, signal.SIGKILL)
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
        assert owner.is_dead_here()
    finally:
        process.kill()
        process.join(DEADLINE)


def test_a_number_that_was_given_to_another_process_is_not_its_owner() -> None:
    owner = Owner.current()
    assert owner.start_ticks is not None
    assert replace(owner, start_ticks=owner.start_ticks - 1).is_dead_here()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("field_name", "other_value"),
    [("boot_id", "x"), ("boot_id", None), ("pid_namespace", "x"), ("host", "x"), ("start_ticks", None)],
)
def test_what_cannot_be_compared_is_not_called_dead(
    other_process: Holder, field_name: str, other_value: str | None
) -> None:
    other_process.kill_and_reap()
    owner = other_process.record.owner
    assert owner is not None
    assert owner.is_dead_here()
    assert not Owner.from_fields(owner.to_fields() | {field_name: other_value}).is_dead_here()


@pytest.mark.processes
def test_without_proc_nobody_is_called_dead(
    other_process: Holder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_process.kill_and_reap()
    owner = other_process.record.owner
    assert owner is not None
    monkeypatch.setattr(owner_module, "PROC", str(tmp_path / "none"))
    assert not owner.is_dead_here()
    here = Owner.current()
    assert (here.start_ticks, here.boot_id, here.pid_namespace) == (None, None, None)
    assert not here.is_dead_here()


@pytest.mark.processes
def test_a_process_that_proc_hides_is_not_called_dead(
    other_process: Holder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/proc mounted with hidepid=2 shows only the processes of the one who looks."""
    owner = other_process.record.owner
    assert owner is not None
    assert owner.boot_id is not None
    assert owner.pid_namespace is not None
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text(owner.boot_id + "\n")
    (tmp_path / str(os.getpid()) / "ns").mkdir(parents=True)
    (tmp_path / str(os.getpid()) / "ns" / "pid").symlink_to(owner.pid_namespace)
    (tmp_path / "self").symlink_to(str(os.getpid()))
    monkeypatch.setattr(owner_module, "PROC", str(tmp_path))
    assert not owner.is_dead_here()
    other_process.kill_and_reap()
    assert owner.is_dead_here()
    # A /proc of another process namespace: its numbers are not ours.
    (tmp_path / str(os.getpid())).rename(tmp_path / "1")
    (tmp_path / "self").unlink()
    (tmp_path / "self").symlink_to("1")
    assert not owner.is_dead_here()
