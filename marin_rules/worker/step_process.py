"""The process in which a step's own code runs, apart from the worker that watches over it.

It is forked before the worker takes the lease (a fork wants a process without threads), or even before there is a step
for it; it waits for the order to start, and dies with its worker. It has a session of its own, so that everything it
started can be ended together. The outcome of the step's function comes back through a pipe, before the process ends
(see `step_end`); the worker alone writes states.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import pwd
import signal
import struct
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from marin_rules.parentage import adopt_orphans, end_with_parent
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.process import ThisProcess
from marin_rules.state.failures import pickled
from marin_rules.worker.library_variables import forget_library_variables, leave_outer_step
from marin_rules.worker.noted_signals import note_stop_signals, noted_stop_signal
from marin_rules.worker.ranks import ranks_of, run_ranks
from marin_rules.worker.standard_streams import open_standard_streams
from marin_rules.worker.step_call import Outcome, call_step, one_line
from marin_rules.worker.step_data import open_data_access
from marin_rules.worker.step_end import EXIT_THROUGH, end, end_seconds, lingering, prepare_end
from marin_rules.worker.variables import set_step_variables

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Script:
    """The command of a hand-written rule: a text for an interpreter."""

    text: bytes
    interpreter: Sequence[str]


@dataclass(frozen=True)
class Pool:
    """How the process of an array step runs its tasks."""

    round: int
    at_once: int


@dataclass(frozen=True)
class _Order:
    """The order to start."""

    step: str
    """Its key."""

    script: Script | None
    variables: Mapping[str, str]
    this_process: ThisProcess
    pool: Pool | None


@dataclass(frozen=True)
class Returned:
    """The report of a step's process that its function has returned, or raised."""

    process: int
    outcome: Outcome
    lingering: tuple[str, ...] = ()
    """What the process still has to wait for before it can end."""

    end_seconds: float = 0.0
    """How long it may take for that."""


class StepProcess:
    """A step's process. Created first, for any step of the plan; told which one, and to start, once the lease is
    held."""

    def __init__(self, plan: FrozenPlan) -> None:
        adopt_orphans()  # What the step leaves running becomes our child, and is ended.
        self._of_others = frozenset(descendants(os.getpid()))  # What an earlier step has left was already reported.
        open_standard_streams()
        go_read, self._go = os.pipe()
        self.result, self._result_write = os.pipe()
        self.stdout, stdout_write = os.pipe()
        self.stderr, stderr_write = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # Python has none for a descriptor that was closed when it started.
                stream.flush()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            for descriptor in (self._go, self.result, self.stdout, self.stderr):
                os.close(descriptor)
            _child(parent, go_read, self._result_write, stdout_write, stderr_write, plan)
        for descriptor in (go_read, stdout_write, stderr_write):  # The step may close its end of the other by mistake.
            os.close(descriptor)
        self.exit_status: int | None = None
        self.left: dict[int, str] = {}
        """Processes of the step that cannot be ended, because they run as another user."""

        self.returned: Returned | None = None
        """Set by `read_report` once the step's function has returned."""

        self.is_pool = False
        """It runs the tasks of an array step, and no code of the step itself."""

        self._report = bytearray()
        self._is_over = False
        """Nothing of the step is left, so nothing can ever arrive from it."""

    def go(
        self,
        step: FrozenStep,
        script: Script | None,
        variables: Mapping[str, str],
        this_process: ThisProcess,
        pool: Pool | None = None,
    ) -> None:
        """Let the step's code run, with these variables in its environment; those of the step itself win."""
        self.is_pool = pool is not None
        _send(self._go, pickle.dumps(_Order(step.key, script, dict(variables), this_process, pool)))
        self._go = -1  # Closed: its number may soon be that of a connection.

    def close(self) -> None:
        """Close the pipes of the ended process."""
        for descriptor in (self._go, self.result, self._result_write, self.stdout, self.stderr):
            if descriptor >= 0:
                os.close(descriptor)

    def ended(self) -> bool:
        """Whether the process has ended; collects it and whatever else has become our child."""
        while self.exit_status is None:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.exit_status = 1 << 8
                break
            if pid == 0:
                break
            if pid == self.pid:
                self.exit_status = status
        return self.exit_status is not None

    @property
    def was_terminated(self) -> bool:
        """Whether it ended by a SIGTERM."""
        status = self.exit_status or 0
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM

    def started(self) -> list[int]:
        """The process and all that it started and that still runs."""
        return [pid for pid in self._descendants() if pid not in self._of_others]

    def _descendants(self) -> list[int]:
        """All processes below this one, and the step's in any case: /proc does not list children everywhere."""
        if self._is_over:
            return []
        found = descendants(os.getpid())
        if self.exit_status is None and self.pid not in found:
            return [self.pid, *found]
        self._is_over = not found
        return found

    def stop(self, signal_number: int) -> None:
        """Send a signal to the step and to all that it started, except what has become another user's (`sudo`).

        A pool is asked to stop on its own: it signals its tasks, each of which must be signalled once.
        """
        is_asked = self.is_pool and signal_number == signal.SIGTERM and self.exit_status is None
        for pid in [self.pid] if is_asked else self._descendants():
            if send_signal(pid, signal_number):
                continue
            if pid not in self.left and pid not in self._of_others:
                self.left[pid] = describe_process(pid)
            if pid == self.pid and signal_number == signal.SIGKILL:
                self.exit_status = int(signal.SIGKILL)  # We cannot end it: waiting for that would never end.

    def kill(self) -> None:
        """End the step and all that it started, and wait until it has ended."""
        self.stop(signal.SIGKILL)
        while not self.ended():
            time.sleep(0.001)

    def read_report(self) -> bool:
        """Read what is in the result pipe; False at its end. A result of any other process is ignored."""
        while True:
            try:
                data = os.read(self.result, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._report += data
            if self.returned is None:
                self.returned = self._parse_report()

    def _parse_report(self) -> Returned | None:
        """The step's own report among what has arrived; that of a forked copy is skipped."""
        while len(self._report) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._report)
            if len(self._report) < _LENGTH.size + length:
                return None
            try:
                message = pickle.loads(self._report[_LENGTH.size : _LENGTH.size + length])
            except Exception:
                message = None
            if isinstance(message, Returned) and message.process == self.pid:
                return message
            del self._report[: _LENGTH.size + length]
        return None


def _child(parent: int, go: int, result: int, stdout: int, stderr: int, plan: FrozenPlan) -> NoReturn:
    pipe_of_result, result_of_worker = _identity(result), result
    try:
        os.setsid()
        end_with_parent(parent)
        with os.fdopen(go, "rb") as pipe:
            order = pipe.read()
        if not order:
            os._exit(0)  # The worker found that there is nothing to do.
        word: _Order = pickle.loads(order)
        step, script = plan.by_key[word.step], word.script
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        if word.pool is not None:
            from marin_rules.worker.task_pool import run_tasks  # Its workers are made of processes like this one.

            # They need the variables that control this run, and give their tasks what a step is given.
            os.environ.update(word.variables)
            _end_pool(result, run_tasks(plan, step, word.pool))
        note_stop_signals()
        if os.path.isdir(plan.run.working_directory):
            os.chdir(plan.run.working_directory)
        leave_outer_step(os.environ)
        os.environ.update(word.variables)
        ranks = ranks_of(step) if script is None else None
        if ranks is not None:
            forget_library_variables(os.environ)
        set_step_variables(step.variables)
        os.environ.update(word.this_process.to_variables())
        open_data_access(plan, step)
        prepare_end()
        if script is not None:
            outcome = _run_script(script)
        elif ranks is not None:
            outcome = run_ranks(ranks, plan, step)
        else:
            outcome = call_step(plan, step)
    except BaseException as error:
        traceback.print_exc()
        outcome = Outcome(error=one_line(error), exception=pickled(error))
    try:
        message = _packed(Returned(os.getpid(), outcome, lingering(), end_seconds()))
        if _identity(result) != pipe_of_result:
            # The step has closed it (os.closerange), and the number may belong to a file of its own by now.
            result = os.open(f"/proc/{parent}/fd/{result_of_worker}", os.O_WRONLY)
        _send(result, message)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    plan.forget_calls()
    end(EXIT_THROUGH if outcome.error is None else 1)


def _end_pool(result: int, outcome: Outcome) -> NoReturn:
    """Report the outcome of the tasks, and end at once: no code of the step has run in this process."""
    _send(result, _packed(Returned(os.getpid(), outcome, end_seconds=end_seconds())))
    os._exit(EXIT_THROUGH if outcome.error is None else 1)


def _packed(returned: Returned) -> bytes:
    message = pickle.dumps(returned)
    return _LENGTH.pack(len(message)) + message


def _run_script(script: Script) -> Outcome:
    """Run the command of a hand-written rule and wait for it."""
    # A stop signal is for the script as well, which may still have something to write: this process waits for its end.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(read, 0)
        os.close(write)
        try:
            os.execvp(script.interpreter[0], list(script.interpreter))
        except OSError as error:
            os.write(2, f"{script.interpreter[0]}: {error.strerror}\n".encode())
            os._exit(127)
    os.close(read)
    with os.fdopen(write, "wb") as pipe, contextlib.suppress(BrokenPipeError):
        pipe.write(script.text)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    problem = None if code == 0 else f"the command of its rule ended with exit code {code}"
    return Outcome(error=problem, stopped_by=noted_stop_signal())


def _identity(descriptor: int) -> tuple[int, int] | None:
    """What is behind a descriptor; None if it is closed."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _send(descriptor: int, data: bytes) -> None:
    """Send one message, and close the pipe."""
    while data:
        data = data[os.write(descriptor, data) :]
    os.close(descriptor)


def descendants(root: int) -> list[int]:
    """All processes below `root`, children before grandchildren.

    From /proc, not psutil: a step's own environment has none, and psutil looks at every process of the machine for it.
    """
    found: list[int] = []
    pending = [root]
    while pending:
        below = children(pending.pop(0))
        found += below
        pending += below
    return found


def children(pid: int) -> list[int]:
    """The processes that any thread of a process has started."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def send_signal(pid: int, number: int) -> bool:
    """Send a signal to a process; False if it belongs to somebody else. One that has ended is fine."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def describe_process(pid: int) -> str:
    """A process for people: `process 4711 (sleep 60) of root`."""
    command, user = "?", "another user"
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        command = file.read(200).replace(b"\0", b" ").decode(errors="replace").strip() or command
    with contextlib.suppress(OSError, KeyError):
        user = pwd.getpwuid(os.stat(f"/proc/{pid}").st_uid).pw_name
    return f"process {pid} ({command}) of {user}"
