"""A warm worker: one process that has everything imported, and forks a worker for each local job.

Starting Python and importing costs more than most bookkeeping of a step. Jobs (`run-step`) hand their arguments over
a named pipe in a private folder and wait for the exit code on a pipe of their own. Each step still runs in a process
of its own, apart from the driver. Without a warm worker, or if it dies, jobs start a Python themselves.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from marin_rules.execution import worker
from marin_rules.execution.frozen import FrozenPlan

WARM_VARIABLE = "MARIN_RULES_WARM"
_REQUESTS = "requests"
_REPLY = "reply"
_TAKEN = "taken"
_PROCESS_ID = "pid"
_PREPARED_REPLIES = 32
"""Pipes made in advance; a job that finds no free one makes its own."""

_READY_SECONDS = 10.0
_LOOK_SECONDS = 0.5
"""How often the worker looks whether the job that waits for a step is still there."""


class WarmWorker:
    """The driver's handle of its warm worker."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @classmethod
    def start(cls, plan_path: str) -> WarmWorker:
        folder = tempfile.mkdtemp(prefix="marin-rules-")
        for name in (_REQUESTS, *(f"{_REPLY}.{slot}" for slot in range(_PREPARED_REPLIES))):
            os.mkfifo(os.path.join(folder, name), 0o600)
        # A session of its own: an interrupt in the terminal reaches the jobs, and these pass it on.
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, folder, plan_path], stdin=subprocess.PIPE, start_new_session=True
        )
        os.environ[WARM_VARIABLE] = folder
        # The first jobs would else each start a Python of their own, which takes longer than this.
        give_up = time.monotonic() + _READY_SECONDS
        while not os.path.exists(os.path.join(folder, _PROCESS_ID)):
            if process.poll() is not None or time.monotonic() > give_up:
                break
            time.sleep(0.01)
        return cls(process)

    def stop(self) -> None:
        os.environ.pop(WARM_VARIABLE, None)
        assert self._process.stdin is not None
        self._process.stdin.close()  # The end of its input: it ends once its steps have, and removes its folder.
        self._process.wait()


@dataclass(frozen=True)
class _Job:
    """A `run-step` that waits for its step."""

    reply: int
    """The pipe on which it waits."""

    taken: str
    """The file by which it holds that pipe."""


def serve(folder: str, plan_path: str) -> None:
    """Fork a worker for each request until the driver has gone and all workers have ended."""
    plan = FrozenPlan.read(plan_path)
    gc.freeze()  # What is here now is shared with the workers; looking for garbage in it would copy it.
    wakeup, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    requests = os.open(os.path.join(folder, _REQUESTS), os.O_RDWR | os.O_NONBLOCK)
    with open(os.path.join(folder, _PROCESS_ID + ".new"), "w") as file:
        file.write(f"{os.getpid()}\n")
    os.rename(os.path.join(folder, _PROCESS_ID + ".new"), os.path.join(folder, _PROCESS_ID))

    jobs: dict[int, _Job] = {}
    buffer = b""
    driver_is_there = True
    with selectors.DefaultSelector() as selector:
        for descriptor in (requests, wakeup, 0):
            selector.register(descriptor, selectors.EVENT_READ)
        while driver_is_there or jobs:
            for key, _ in selector.select(_LOOK_SECONDS if jobs else None):
                if key.fd == requests:
                    buffer += os.read(requests, 1 << 16)
                    *lines, buffer = buffer.split(b"\n")
                    for line in lines:
                        _start(line, folder, plan, jobs, (requests, wakeup, wakeup_write))
                elif key.fd == 0:
                    if not os.read(0, 4096):
                        driver_is_there = False
                        selector.unregister(0)
                else:
                    os.read(wakeup, 4096)
            _collect(jobs)
            _stop_abandoned(jobs)
    shutil.rmtree(folder, ignore_errors=True)


def _start(line: bytes, folder: str, plan: FrozenPlan, jobs: dict[int, _Job], inherited: Sequence[int]) -> None:
    slot, *arguments = line.decode().split("\t")
    try:
        reply = os.open(os.path.join(folder, f"{_REPLY}.{slot}"), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return  # The job is gone already.
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            os.setsid()
            for descriptor in (*inherited, reply, *(job.reply for job in jobs.values())):
                os.close(descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            code = worker.main(arguments, plan)
        finally:
            os._exit(code)
    jobs[pid] = _Job(reply, os.path.join(folder, f"{_TAKEN}.{slot}"))
    os.write(reply, f"pid {pid}\n".encode())


def _collect(jobs: dict[int, _Job]) -> None:
    """Tell the jobs of workers that have ended."""
    while jobs:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        job = jobs.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(OSError):
            os.write(job.reply, f"exit {code if code >= 0 else 128 - code}\n".encode())
        os.close(job.reply)
        os.unlink(job.taken)


def _stop_abandoned(jobs: dict[int, _Job]) -> None:
    """A job that was killed no longer reads its pipe: end its step."""
    for pid, job in jobs.items():
        poll = select.poll()
        poll.register(job.reply, 0)
        if any(event & select.POLLERR for _, event in poll.poll(0)):
            os.kill(pid, signal.SIGTERM)


if __name__ == "__main__":
    serve(*sys.argv[1:])
