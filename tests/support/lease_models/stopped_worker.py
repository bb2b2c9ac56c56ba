"""A worker in a process of its own, which is stopped by a signal at the worst moment.

    python -m support.lease_models.stopped_worker OUTPUT_PATH between|inside

Takes the lease, writes RUNNING, keeps its heart beating and says `running`. At the next line of its input it commits
SUCCESS, gives the lease back, and says how that went. `inside`: just before the commit reaches the store, after
everything that is checked beforehand, it stops itself (SIGSTOP).
"""

import fcntl
import os
import signal
import sys
import threading
from typing import Any

from marin_rules.state.status import Status, status_bytes, status_path
from marin_rules.state.step_lease import open_lease
from marin_rules.storage.leases.heartbeat import Heartbeat
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.owner import Owner
from marin_rules.urls import is_url


def main(output_path: str, moment: str) -> None:
    lease = open_lease(output_path, Owner.current())
    assert lease.try_acquire() is None
    status = status_path(output_path)
    assert lease.read(status) is None
    lease.commit(status, status_bytes(Status.RUNNING, output_path))
    heartbeat = Heartbeat(lease, wake=lambda: None, say=lambda text: None)
    heartbeat.start()
    say("running")
    sys.stdin.readline()
    if moment == "inside":
        stop_before_the_store(lease, status)
    try:
        lease.overwrite(status, status_bytes(Status.SUCCESS, output_path))
        say("committed")
    except LeaseLostError as lost:
        say(f"lost: {lost}")
    heartbeat.stop()
    lease.release()
    say("released")


def stop_before_the_store(lease: Lease, status: str) -> None:
    """Let the process stop itself, once, at the last moment before a commit changes anything."""
    is_due = [True]

    def stop() -> None:
        if is_due:
            is_due.clear()
            os.kill(os.getpid(), signal.SIGSTOP)

    if is_url(status):
        objects = lease._store._objects  # type: ignore[attr-defined]
        real_write = objects.write

        def write(url: str, data: bytes, expected: str | None) -> str | None:
            if url == status:
                stop()
            version: str | None = real_write(url, data, expected)
            return version

        objects.write = write
        return
    real_lock = fcntl.flock

    def lock(descriptor: Any, operation: int) -> None:
        # The heartbeat locks, too, but from another thread.
        if operation & fcntl.LOCK_EX and threading.current_thread() is threading.main_thread():
            stop()
        real_lock(descriptor, operation)

    fcntl.flock = lock


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
