"""The server behind warm workers: it hands each request to an idle worker, and forks one when none is left.

A worker watches over one step at a time; the step's own code runs in a process that is forked for it alone (see
`marin_rules.worker.step_process`), so nothing passes from one step to the next. If a worker is killed, the server
answers the job that waits for it and ends what the step has left running. It ends itself when the driver has gone and
the last step is over. Steps that the driver asked for are told to stop if the process that represents them in its
process group is gone as well: that group was killed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import shutil
import signal
import sys
import traceback
from typing import NoReturn

import fsspec.registry  # noqa: F401 - here once, instead of in each step's process

from marin_rules.errors import MarinRulesError
from marin_rules.parentage import adopt_orphans
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.plan_file import read_plan
from marin_rules.worker.exit_codes import EXIT_FAILED
from marin_rules.worker.main import main as run_worker
from marin_rules.worker.main import parse
from marin_rules.worker.step_process import (
    StepProcess,
    children,
    descendants,
    describe_process,
    send_signal,
)
from marin_rules.worker.warm.client import ANSWERS, DRIVER, PROCESS_ID, QUIET, REPLY, REQUESTS, STOP, TAKEN

_STOP_AGAIN_SECONDS = 1.0
"""How often a worker is told to stop: between two steps it does not listen."""

_STOPPED = 128 + signal.SIGTERM


class Server:
    """One server for one run."""

    def __init__(self, folder: str, plan: FrozenPlan) -> None:
        self._folder = folder
        self._plan = plan
        self._workers: dict[int, int] = {}
        """Process -> the pipe by which it gets its requests."""

        self._idle: list[int] = []
        self._busy: dict[int, str] = {}
        """Process -> the number of the reply pipe of the job it works for."""

        self._stops = False
        """The driver's steps must end, and no further one is started."""

        self._left: set[int] = set()
        """Processes of ended steps that run as another user and could not be ended."""

        self._driver_is_gone = False
        self._requests = os.open(os.path.join(folder, REQUESTS), os.O_RDWR | os.O_NONBLOCK)
        # Ends with the process in the driver's group, which alone has it open for writing.
        self._quiet = os.open(os.path.join(folder, QUIET), os.O_RDONLY | os.O_NONBLOCK)
        self._idle_read, self._idle_write = os.pipe()
        self._wakeup, self._wakeup_write = os.pipe()

    def serve(self) -> None:
        """Take requests until the driver has gone; then wait for the workers to end."""
        adopt_orphans()
        os.set_blocking(self._wakeup_write, False)
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        try:
            self._announce()
        except OSError as error:
            _give_up(self._folder, error)
        unread = b""
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._requests, self._quiet, self._idle_read, self._wakeup, 0):
                selector.register(descriptor, selectors.EVENT_READ)
            while self._workers or not self._driver_is_gone:
                ready = {key.fd for key, _ in selector.select(_STOP_AGAIN_SECONDS if self._stops else None)}
                if self._stops:
                    self._stop_steps()
                if 0 in ready and not os.read(0, 4096):
                    selector.unregister(0)
                    self._lose_driver()
                if self._quiet in ready:
                    selector.unregister(self._quiet)
                if self._driver_is_gone and self._quiet not in selector.get_map() and not self._stops:
                    self._stop_steps()
                if self._idle_read in ready:
                    for pid in map(int, os.read(self._idle_read, 1 << 16).split()):
                        self._busy.pop(pid, None)
                        self._idle.append(pid)
                if self._wakeup in ready:
                    os.read(self._wakeup, 1 << 16)
                    self._collect()
                if self._requests in ready:
                    unread += os.read(self._requests, 1 << 16)
                    *lines, unread = unread.split(b"\n")
                    for line in lines:
                        self._dispatch(line)

    def _lose_driver(self) -> None:
        """Let each worker end after its step."""
        self._driver_is_gone = True
        for pid, pipe in self._workers.items():
            os.close(pipe)
            self._workers[pid] = -1

    def _announce(self) -> None:
        """From now on jobs find the server."""
        path = os.path.join(self._folder, PROCESS_ID)
        with open(path + ".new", "w") as file:
            file.write(f"{os.getpid()}\n")
        os.rename(path + ".new", path)

    def _stop_steps(self) -> None:
        """Signal all workers that have a step of the driver's."""
        self._stops = True
        for pid, slot in self._busy.items():
            if slot.startswith(DRIVER):
                send_signal(pid, signal.SIGTERM)

    def _dispatch(self, line: bytes) -> None:
        if line == STOP.encode():
            self._stop_steps()
            return
        if self._driver_is_gone:
            return  # The requester sees us end, and starts a Python.
        slot = line.split(b"\t", 1)[0].decode()
        if self._stops and slot.startswith(DRIVER):
            with contextlib.suppress(OSError), _Reply(self._folder, slot) as reply:
                reply.say(f"exit {_STOPPED}")
            return
        while True:
            pid = self._idle.pop() if self._idle else self._fork_worker()
            try:
                os.write(self._workers[pid], line + b"\n")
            except (BrokenPipeError, KeyError):
                continue  # It was killed while it was idle.
            self._busy[pid] = slot
            return

    def _collect(self) -> None:
        """Reap what has ended: killed workers, and orphans of their steps."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                self._bury(*ended)

    def _bury(self, pid: int, status: int) -> None:
        if pid not in self._workers:
            return
        with contextlib.suppress(OSError):
            os.close(self._workers.pop(pid))
        for orphan in children(os.getpid()):
            if orphan not in self._workers:
                for process in (orphan, *descendants(orphan)):
                    self._end(process)
        if pid in self._idle:
            self._idle.remove(pid)
        slot = self._busy.pop(pid, None)
        if slot is not None:
            code = os.waitstatus_to_exitcode(status)
            with contextlib.suppress(OSError), _Reply(self._folder, slot) as reply:
                reply.say(f"exit {code if code > 0 else 128 - code}")
            _free_reply(self._folder, slot)

    def _end(self, process: int) -> None:
        if send_signal(process, signal.SIGKILL) or process in self._left:
            return
        self._left.add(process)
        text = (
            f"marin-rules: left running: {describe_process(process)}, which only that user or an administrator can end"
        )
        print(text, file=sys.stderr, flush=True)

    def _fork_worker(self) -> int:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.setsid()
                own = (self._requests, self._quiet, self._idle_read, self._wakeup, self._wakeup_write)
                for descriptor in (write, *own, *self._workers.values()):
                    os.close(descriptor)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                _work(self._folder, self._plan, read, self._idle_write)
            finally:
                os._exit(1)
        os.close(read)
        self._workers[pid] = write
        return pid


def _work(folder: str, plan: FrozenPlan, requests: int, idle: int) -> NoReturn:
    """Run one step after the other, until the server closes the pipe."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: None)  # A late signal for a step that has ended.
    process = StepProcess(plan)
    with os.fdopen(requests, "r") as lines:
        for line in lines:
            slot, *arguments = line.rstrip("\n").split("\t")
            used = _answer(folder, slot, plan, arguments, process)
            _free_reply(folder, slot)
            os.write(idle, f"{os.getpid()}\n".encode())
            if used:
                process = StepProcess(plan)  # For the next step, while nobody waits for it.
    os._exit(0)


class _Reply:
    """Where the answers to one request go: into the pipe of the job that waits for them, or into the driver's.

    `OSError` if nobody waits any more.
    """

    def __init__(self, folder: str, slot: str) -> None:
        is_drivers = slot.startswith(DRIVER)
        path = os.path.join(folder, ANSWERS if is_drivers else f"{REPLY}.{slot}")
        self._start = f"{slot} " if is_drivers else ""
        self._pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        os.set_blocking(self._pipe, True)  # Only to open it may not wait for a reader.
        self.client = None if is_drivers else self._pipe
        """By which the worker sees that its job is gone. A step continues without its driver."""

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._pipe, f"{self._start}{text}\n".encode())

    def __enter__(self) -> _Reply:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)


def _answer(folder: str, slot: str, plan: FrozenPlan, arguments: list[str], process: StepProcess) -> bool:
    """Run a step for its requester; False if that is gone already."""
    try:
        reply = _Reply(folder, slot)
    except OSError:
        return False
    with reply:
        reply.say(f"pid {os.getpid()}")
        reply.say(f"exit {_run(plan, arguments, reply.client, process)}")
    return True


def _run(plan: FrozenPlan, arguments: list[str], client: int | None, process: StepProcess) -> int:
    try:
        return run_worker(parse(arguments), plan, client=client, process=process)
    except Exception:
        traceback.print_exc()  # A fault of ours; the step counts as failed, the worker continues.
        return EXIT_FAILED


def _free_reply(folder: str, slot: str) -> None:
    """Let another job take the reply pipe: a new one, since the last job may not have read its answer yet."""
    if slot.startswith(DRIVER):
        return
    path = os.path.join(folder, f"{REPLY}.{slot}")
    with contextlib.suppress(OSError):
        os.mkfifo(path + ".new", 0o600)
        os.rename(path + ".new", path)
        os.unlink(os.path.join(folder, f"{TAKEN}.{slot}"))


def _give_up(folder: str, error: Exception) -> NoReturn:
    """Leave without a trace: jobs that find no server start a Python themselves."""
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(f"marin-rules: workers are not kept warm: {error}")


def main(folder: str) -> NoReturn:
    order = sys.stdin.buffer.readline()
    if not order.endswith(b"\n"):  # The driver is gone before its first job.
        shutil.rmtree(folder, ignore_errors=True)
        sys.exit()
    plan_path, digest, variables = json.loads(order)
    os.environ.clear()
    os.environ.update(variables)
    try:
        plan = read_plan(plan_path, digest)
    except (MarinRulesError, OSError) as error:
        _give_up(folder, error)
    gc.collect()
    gc.freeze()  # What is here now is shared with the workers; collecting garbage in it would copy it.
    Server(folder, plan).serve()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # There is nothing to clean up, and the driver is waiting.


if __name__ == "__main__":
    main(*sys.argv[1:])
