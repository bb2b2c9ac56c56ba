"""Warm workers: processes that have everything imported and take one local job after the other.

Starting Python and importing costs more than all the bookkeeping of a step. Jobs (`run-step`) write their arguments
to a named pipe in a private folder and wait for the exit code on a pipe of their own. The server behind the pipe forks
a worker when no idle one is left. A worker watches over one step at a time; the step's own code runs in a process that
is forked for it alone (see `marin_rules.execution.step_process`), so nothing passes from one step to the next. Without
the server, or if it dies, jobs start a Python themselves.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from typing import NoReturn

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


class WarmServer:
    """The driver's handle of the server."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @classmethod
    def start(cls, plan_path: str) -> WarmServer:
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
        """Let the server end; it does so once its steps have ended, and removes its folder."""
        os.environ.pop(WARM_VARIABLE, None)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(folder: str, plan_path: str) -> NoReturn:
    """Hand each request to a worker until the driver has gone; then wait for the workers to end."""
    plan = FrozenPlan.read(plan_path)
    gc.collect()
    gc.freeze()  # What is here now is shared with the workers; looking for garbage in it would copy it.
    requests = os.open(os.path.join(folder, _REQUESTS), os.O_RDWR | os.O_NONBLOCK)
    idle_read, idle_write = os.pipe()
    workers: dict[int, int] = {}  # Process -> the pipe by which it gets its requests.
    idle: list[int] = []
    _announce(folder)

    buffer = b""
    with selectors.DefaultSelector() as selector:
        for descriptor in (requests, idle_read, 0):
            selector.register(descriptor, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if 0 in ready and not os.read(0, 4096):
                break
            if idle_read in ready:
                idle += [int(line) for line in os.read(idle_read, 1 << 16).split()]
            if requests in ready:
                buffer += os.read(requests, 1 << 16)
            while b"\n" in buffer:
                line, buffer = buffer.split(b"\n", 1)
                pid = idle.pop() if idle else _fork_worker(folder, plan, workers, (requests, idle_read), idle_write)
                try:
                    os.write(workers[pid], line + b"\n")
                except BrokenPipeError:  # It was killed while it was idle.
                    os.close(workers.pop(pid))
                    buffer = line + b"\n" + buffer
    for pipe in workers.values():
        os.close(pipe)
    for pid in workers:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # There is nothing to tidy up, and the driver waits.


def _announce(folder: str) -> None:
    """From now on jobs find the server."""
    path = os.path.join(folder, _PROCESS_ID)
    with open(path + ".new", "w") as file:
        file.write(f"{os.getpid()}\n")
    os.rename(path + ".new", path)


def _fork_worker(
    folder: str, plan: FrozenPlan, workers: dict[int, int], inherited: tuple[int, ...], idle_write: int
) -> int:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            for descriptor in (write, *inherited, *workers.values()):
                os.close(descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            _work(folder, plan, read, idle_write)
        finally:
            os._exit(1)
    os.close(read)
    workers[pid] = write
    return pid


def _work(folder: str, plan: FrozenPlan, requests: int, idle: int) -> NoReturn:
    """Run one step after the other, until the server closes the pipe."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: None)  # A late signal for a step that has ended.
    with os.fdopen(requests, "r") as lines:
        for line in lines:
            slot, *arguments = line.rstrip("\n").split("\t")
            try:
                reply = os.open(os.path.join(folder, f"{_REPLY}.{slot}"), os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                reply = -1  # The job is gone already.
            if reply >= 0:
                with contextlib.suppress(OSError):
                    os.write(reply, f"pid {os.getpid()}\n".encode())
                code = _run(plan, arguments, reply)
                with contextlib.suppress(OSError):
                    os.write(reply, f"exit {code}\n".encode())
                os.close(reply)
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, f"{_TAKEN}.{slot}"))
            os.write(idle, f"{os.getpid()}\n".encode())
    os._exit(0)


def _run(plan: FrozenPlan, arguments: list[str], reply: int) -> int:
    try:
        return worker.main(worker.parse(arguments), plan, client=reply)
    except Exception:
        traceback.print_exc()  # A fault of ours; the step counts as failed, the worker goes on.
        return worker.EXIT_FAILED


if __name__ == "__main__":
    serve(*sys.argv[1:])
