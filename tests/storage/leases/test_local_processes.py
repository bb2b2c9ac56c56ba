"""Leases in files, and ten processes that race for them."""

import multiprocessing
import os
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from marin_rules.state.status import Status, read_status, status_path
from marin_rules.state.step_lease import lease_path, peek
from marin_rules.storage.leases.clock import SystemClock
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.local import LocalLeaseStore
from marin_rules.storage.leases.owner import Owner

DEADLINE = 30.0
"""Seconds after which a test that waits for a process has failed. Not reached when all is well."""

fork = multiprocessing.get_context("fork")

# A forked child here calls the system and nothing that another thread could have locked.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def output_path(tmp_path: Path) -> str:
    return str(tmp_path / "step-123456")


def lease_on(output_path: str) -> Lease:
    return Lease(LocalLeaseStore(lease_path(output_path)), Owner.current(), SystemClock())


def join_all(processes: list[BaseProcess]) -> None:
    last_moment = time.monotonic() + DEADLINE
    try:
        for process in processes:
            process.join(max(0.0, last_moment - time.monotonic()))
        assert [process.exitcode for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
            process.join()


@pytest.mark.processes
def test_ten_processes_that_die_with_the_lease_hold_it_one_after_the_other(output_path: str) -> None:
    barrier = fork.Barrier(10)

    def take_and_die() -> None:
        lease = lease_on(output_path)
        barrier.wait(DEADLINE)
        while lease.try_acquire() is not None:
            os.sched_yield()
        assert lease.record is not None
        # Fails, and so does this process, when somebody had the same epoch.
        os.close(os.open(f"{output_path}/epoch-{lease.record.epoch}", os.O_CREAT | os.O_EXCL))
        os._exit(0)

    processes: list[BaseProcess] = [fork.Process(target=take_and_die) for _ in range(10)]
    for process in processes:
        process.start()
    join_all(processes)
    expected = {".executor_status.lock"} | {f"epoch-{epoch}" for epoch in range(1, 11)}
    assert set(os.listdir(output_path)) == expected


@pytest.mark.processes
def test_ten_processes_take_turns_and_readers_see_whole_records(output_path: str) -> None:
    barrier = fork.Barrier(11)

    def take_turns() -> None:
        lease = lease_on(output_path)
        barrier.wait(DEADLINE)
        for _ in range(10):
            while lease.try_acquire() is not None:
                os.sched_yield()
            inside = os.open(f"{output_path}/inside", os.O_CREAT | os.O_EXCL)
            lease.refresh()
            lease.commit(status_path(output_path), b"RUNNING")
            os.unlink(f"{output_path}/inside")
            os.close(inside)
            lease.release()

    processes: list[BaseProcess] = [fork.Process(target=take_turns) for _ in range(10)]
    for process in processes:
        process.start()
    barrier.wait(DEADLINE)
    seen, last_moment = set[str](), time.monotonic() + DEADLINE
    while any(process.is_alive() for process in processes) and time.monotonic() < last_moment:
        if (record := peek(output_path)) is not None:
            seen.add(record.worker_id)
        assert read_status(output_path) in (None, Status.RUNNING)
    join_all(processes)
    assert seen
    assert os.listdir(output_path) == [".executor_status"]
