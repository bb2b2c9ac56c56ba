"""A real worker that is stopped (SIGSTOP) while it holds a lease, and goes on after another one took it over."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marin_rules.state.status import Status, status_bytes, status_path
from marin_rules.state.step_lease import open_lease, peek
from marin_rules.storage.files import read_bytes
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.open import LIFETIME_VARIABLE
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.objects import open as open_module

DEADLINE = 30.0
"""Seconds after which a test that waits for a process has failed. Not reached when all is well."""

LIFETIME = 1.0

TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def short_lived_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIFETIME_VARIABLE, str(LIFETIME))
    monkeypatch.setattr(open_module, "_local", threading.local())  # Clients of earlier tests know other emulators.


class StoppedWorker:
    """`support.lease_models.stopped_worker`, seen from outside."""

    def __init__(self, output_path: str, moment: str) -> None:
        path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.lease_models.stopped_worker", output_path, moment],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], DEADLINE)
        assert readable
        return self.process.stdout.readline().decode().strip()

    def tell_to_commit(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")

    def is_stopped(self) -> bool:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def until(condition: Callable[[], bool]) -> None:
    """Look again and again, without keeping others from the processor."""
    last_moment = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < last_moment
        os.sched_yield()


@pytest.fixture(params=["local", "gs", "s3"])
def output_path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "step-123456")
    request.getfixturevalue({"gs": "gcs_here", "s3": "s3_here"}[request.param])
    return f"{request.param}://bucket/step-123456"


@pytest.fixture
def worker_to_stop(output_path: str, moment: str) -> Iterator[StoppedWorker]:
    worker = StoppedWorker(output_path, moment)
    yield worker
    worker.end()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("moment", "lifetimes"),
    [
        ("inside", 1),
        pytest.param("inside", 3, marks=pytest.mark.faults),
        pytest.param("between", 3, marks=pytest.mark.faults),
    ],
)
def test_the_commit_of_a_worker_that_was_stopped_is_refused(
    output_path: str, worker_to_stop: StoppedWorker, moment: str, lifetimes: int
) -> None:
    assert worker_to_stop.line() == "running"
    successor = open_lease(output_path, Owner.current())
    assert the_holder_is_alive(output_path, successor)

    if moment == "inside":
        worker_to_stop.tell_to_commit()
    else:
        worker_to_stop.process.send_signal(signal.SIGSTOP)
    until(worker_to_stop.is_stopped)
    stopped_at = time.monotonic()

    until(lambda: successor.try_acquire() is None)
    assert time.monotonic() - stopped_at >= LIFETIME * 0.5  # Its last heartbeat was up to a third of a lifetime before.
    running = status_bytes(Status.RUNNING, output_path)
    assert successor.read(status_path(output_path)) is not None
    successor.commit(status_path(output_path), running)
    until(lambda: has_waited(successor, stopped_at + lifetimes * LIFETIME))

    worker_to_stop.process.send_signal(signal.SIGCONT)
    if moment == "between":
        worker_to_stop.tell_to_commit()
    assert "does not hold the lease" in worker_to_stop.line()
    assert worker_to_stop.line() == "released"
    assert worker_to_stop.process.wait(DEADLINE) == 0

    assert read_bytes(status_path(output_path)) == running
    assert peek(output_path) == successor.record
    successor.overwrite(status_path(output_path), b"SUCCESS")
    successor.release()
    assert peek(output_path) is None


def the_holder_is_alive(output_path: str, other: Lease) -> bool:
    """Wait for a heartbeat, which nobody may take the lease before."""
    first = peek(output_path)
    until(lambda: other.try_acquire() is not None and peek(output_path) != first)
    return peek(output_path) is not None


def has_waited(holder: Lease, moment: float) -> bool:
    """Keep the lease until `moment`."""
    if time.monotonic() >= holder.refreshed_at + LIFETIME / 3:
        holder.refresh()
    return time.monotonic() >= moment
