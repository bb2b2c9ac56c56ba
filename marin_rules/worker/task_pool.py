"""The tasks of an array step on one machine: several at a time, each handled by a worker of its own.

The process of the step runs the pool, and none of the step's code. It forks workers, which go from task to task; each
task has its own lease, log and record, and its code a process of its own, as a step's has. What the tasks print goes to
the step's log with their numbers, and for each task to its own log.

A task that fails does not stop the others; the step fails when all have ended. A task that somebody else has, such as a
cluster that works on the same step, is left for last, and then waited for. A stop signal goes to the running tasks, and
no other is started. A killed worker leaves nothing running.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import struct
import sys
import time
import traceback
from collections import deque
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn

from marin_rules.parentage import adopt_orphans, end_with_parent
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.task_records import (
    TaskCounts,
    TaskPlace,
    failures_in_words,
    is_hopeless,
    joined_artifacts,
)
from marin_rules.worker.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_HELD, EXIT_LEASE_LOST
from marin_rules.worker.step_call import Outcome
from marin_rules.worker.step_process import Pool, StepProcess, children, send_signal
from marin_rules.worker.task_books import TaskBooks
from marin_rules.worker.worker import TaskOrder, Worker

_STOP_AGAIN_SECONDS = 1.0
"""How often a worker is told to stop: between two tasks it does not listen."""

_SIGNAL = 128
"""Exit codes above this say which signal has stopped a worker."""

_PROGRESS_SECONDS = 5.0
"""How often progress is reported."""

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class _Report:
    """The outcome of one task handled by a worker."""

    code: int
    artifact: Any = None
    error: str = ""
    exception: str | None = None


@dataclass(eq=False)
class _TaskWorker:
    """A process of the pool."""

    pid: int
    orders: int
    reports: int
    task: int | None = None
    unread: bytearray = field(default_factory=bytearray)


def run_tasks(plan: FrozenPlan, step: FrozenStep, pool: Pool) -> Outcome:
    """Do all tasks of the step that are not done, and report their combined outcome."""
    return _TaskPool(plan, step, pool).run()


class _TaskPool:
    def __init__(self, plan: FrozenPlan, step: FrozenStep, pool: Pool) -> None:
        assert step.tasks is not None
        self._plan = plan
        self._step = step
        self._tasks: int = step.tasks
        self._round = pool.round
        self._at_once = min(pool.at_once, step.tasks)
        self._workers: dict[int, _TaskWorker] = {}
        """Workers, by the descriptor that their reports come from."""

        self._pending = deque(range(step.tasks))
        self._held = deque[int]()
        """Tasks that somebody else has. A worker that gets one of these waits: it takes a lifetime to see that a lease
        is no longer refreshed, and only for a worker that keeps looking."""

        self._results: dict[int, Any] = {}
        self._errors: dict[int, str] = {}
        self._exceptions: dict[int, str | None] = {}
        self._stop_signal = 0
        self._child_has_ended = False
        self._told = ""
        self._tell_at = time.monotonic() + _PROGRESS_SECONDS
        self._selector = selectors.DefaultSelector()
        self._wakeup, self._wakeup_write = os.pipe()

    def run(self) -> Outcome:
        self._catch_signals()
        adopt_orphans()
        try:
            while self._is_busy or (self._is_wanted and (self._pending or self._held)):
                self._start_tasks()
                self._wait()
                self._tell_progress()
        finally:
            for worker in list(self._workers.values()):
                self._dismiss(worker)
        self._tell_progress(last=True)
        return self._outcome()

    # -- what is to be done ----------------------------------------------------------------------------------

    @property
    def _busy(self) -> list[_TaskWorker]:
        return [worker for worker in self._workers.values() if worker.task is not None]

    @property
    def _is_busy(self) -> bool:
        return any(worker.task is not None for worker in self._workers.values())

    @property
    def _is_wanted(self) -> bool:
        """Whether further tasks may be started."""
        return not self._stop_signal and not is_hopeless(len(self._results), len(self._errors))

    def _start_tasks(self) -> None:
        while self._is_wanted and len(busy := self._busy) < self._at_once:
            waits = not self._pending
            tasks = self._held if waits else self._pending
            if not tasks:
                return
            idle = next((worker for worker in self._workers.values() if worker not in busy), None)
            worker = idle or self._fork()
            task = tasks.popleft()
            try:
                os.write(worker.orders, f"{task} {waits:d}\n".encode())
            except BrokenPipeError:  # It was killed while it was idle.
                tasks.appendleft(task)
                self._bury(worker, os.waitpid(worker.pid, 0)[1])
                continue
            worker.task = task

    def _wait(self) -> None:
        """Until something has happened, or is due."""
        due = self._tell_at
        if self._stop_signal:
            due = min(due, time.monotonic() + _STOP_AGAIN_SECONDS)
        for key, _ in self._selector.select(max(0.0, due - time.monotonic())):
            if key.fd == self._wakeup:
                os.read(self._wakeup, 4096)
            else:
                self._read(self._workers[key.fd])
        if self._child_has_ended:
            self._child_has_ended = False
            self._bury_the_dead()
        if self._stop_signal:
            for worker in self._busy:
                os.kill(worker.pid, signal.SIGTERM)

    def _read(self, worker: _TaskWorker) -> None:
        """Process what a worker has reported."""
        with contextlib.suppress(BlockingIOError):
            worker.unread += os.read(worker.reports, 1 << 16)
        if len(worker.unread) < _LENGTH.size:
            return
        (length,) = _LENGTH.unpack_from(worker.unread)
        if len(worker.unread) < _LENGTH.size + length:
            return
        report = pickle.loads(worker.unread[_LENGTH.size :])
        worker.unread.clear()
        task, worker.task = worker.task, None
        assert task is not None
        self._settle(task, report)

    def _settle(self, task: int, report: _Report) -> None:
        if report.code == EXIT_DONE:
            self._results[task] = report.artifact
        elif report.code in (EXIT_HELD, EXIT_LEASE_LOST):
            self._held.append(task)
        elif not (self._stop_signal and report.code > _SIGNAL):  # Otherwise all of them were stopped: no failure.
            self._errors[task] = report.error or f"its worker ended with exit code {report.code}"
            self._exceptions[task] = report.exception

    # -- workers ---------------------------------------------------------------------------------------------

    def _fork(self) -> _TaskWorker:
        orders_read, orders = os.pipe()
        reports, reports_write = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            try:
                end_with_parent(parent)
                signal.set_wakeup_fd(-1)
                others = (fd for worker in self._workers.values() for fd in (worker.orders, worker.reports))
                for descriptor in (orders, reports, self._wakeup, self._wakeup_write, *others):
                    os.close(descriptor)
                self._selector.close()
                _work(self._plan, self._step, self._round, orders_read, reports_write)
            finally:
                os._exit(1)
        os.close(orders_read)
        os.close(reports_write)
        worker = self._workers[reports] = _TaskWorker(pid, orders, reports)
        os.set_blocking(reports, False)
        self._selector.register(reports, selectors.EVENT_READ)
        return worker

    def _dismiss(self, worker: _TaskWorker) -> None:
        """Release a worker that has no more tasks."""
        self._forget(worker)
        os.waitpid(worker.pid, 0)

    def _forget(self, worker: _TaskWorker) -> None:
        del self._workers[worker.reports]
        self._selector.unregister(worker.reports)
        os.close(worker.orders)
        os.close(worker.reports)

    def _bury_the_dead(self) -> None:
        """See who was killed. The end of its pipe need not tell: a process that the task has forked may have it."""
        for worker in list(self._workers.values()):
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                self._read(worker)  # It may have sent its last report.
                self._bury(worker, status)

    def _bury(self, worker: _TaskWorker, status: int) -> None:
        self._forget(worker)
        self._end_orphans()
        if worker.task is not None:
            self._settle(worker.task, _Report(EXIT_FAILED, error=_death(status)))

    def _end_orphans(self) -> None:
        """End what a worker that was killed has left: its task, and all that it started, become our children."""
        known = {worker.pid for worker in self._workers.values()}
        while orphans := [pid for pid in children(os.getpid()) if pid not in known]:
            for pid in orphans:
                if send_signal(pid, signal.SIGKILL):
                    os.waitpid(pid, 0)
                else:
                    known.add(pid)  # It has become another user's: we cannot end it.

    def _catch_signals(self) -> None:
        os.set_blocking(self._wakeup_write, False)
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        self._selector.register(self._wakeup, selectors.EVENT_READ)

        def note(number: int, frame: FrameType | None) -> None:
            self._stop_signal = self._stop_signal or number

        def note_child(number: int, frame: FrameType | None) -> None:
            self._child_has_ended = True

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, note)
        signal.signal(signal.SIGCHLD, note_child)

    # -- the outcome -----------------------------------------------------------------------------------------

    def _tell_progress(self, *, last: bool = False) -> None:
        now = time.monotonic()
        if now < self._tell_at and not last:
            return
        self._tell_at = now + _PROGRESS_SECONDS
        text = str(TaskCounts(self._tasks, len(self._results), len(self._busy), len(self._errors)))
        if text != self._told:
            self._told = text
            print(text, flush=True)

    def _outcome(self) -> Outcome:
        if len(self._results) == self._tasks:
            # Whatever signals came: nothing is missing.
            artifacts = [self._results[task] for task in range(self._tasks)]
            return Outcome(artifact=joined_artifacts(artifacts), complete=True)
        if self._stop_signal:
            error = f"stopped by {signal.Signals(self._stop_signal).name}"
            return Outcome(error=error, stopped_by=self._stop_signal)
        left = self._tasks - len(self._results) - len(self._errors)
        return Outcome(
            error=failures_in_words(self._tasks, self._errors, left),
            exception=next((text for _, text in sorted(self._exceptions.items()) if text is not None), None),
        )


def _death(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        hint = " (the kernel does that when memory runs out)" if number == signal.SIGKILL else ""
        return f"its worker was killed by {signal.Signals(number).name}{hint}"
    return f"its worker ended with exit code {os.WEXITSTATUS(status)}"


def _work(plan: FrozenPlan, step: FrozenStep, number: int, orders: int, reports: int) -> NoReturn:
    """Do one task after the other, until the pool closes the pipe."""
    # A late signal for a task that has ended.
    for stop_signal in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(stop_signal, lambda number, frame: None)
    process = StepProcess(plan)
    with os.fdopen(orders) as lines:
        for line in lines:
            task, waits = map(int, line.split())
            place = TaskPlace(step.output_path, number, task)
            report, used = _do(plan, step, place, process, waits=bool(waits))
            with contextlib.suppress(BrokenPipeError):
                _send(reports, pickle.dumps(report))
            if used:
                process = StepProcess(plan)  # For the next task, while nobody waits for it.
    os._exit(0)


def _send(pipe: int, message: bytes) -> None:
    data = _LENGTH.pack(len(message)) + message
    while data:
        data = data[os.write(pipe, data) :]


def _do(
    plan: FrozenPlan, step: FrozenStep, place: TaskPlace, process: StepProcess, *, waits: bool
) -> tuple[_Report, bool]:
    """One task; also whether the process that was kept for it is used up."""
    with contextlib.suppress(OSError):  # If something is wrong with the store, a worker waits, and reports it.
        record = place.read()
        if record is not None and record.is_done:
            return _Report(EXIT_DONE, record.fields.get("artifact")), False
    order = TaskOrder(place.task, place.round, label=f"task {place.task}", waits=waits)
    try:
        worker = Worker(plan, step, task=order, process=process)
        code = worker.run()
    except Exception as error:  # A fault of ours; the task counts as failed, the others continue.
        traceback.print_exc()
        return _Report(EXIT_FAILED, error=f"{type(error).__name__}: {error}"), True
    books = worker.books
    assert isinstance(books, TaskBooks)
    record = books.record
    if record is None:
        return _Report(code, error=books.failure, exception=books.exception), True
    return _Report(code, record.fields.get("artifact"), books.failure or record.error, books.exception), True
