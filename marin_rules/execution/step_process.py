"""The process in which a step's own code runs, apart from the worker that watches over it.

It is forked before the worker takes the lease (a fork wants a process without threads), or even before there is a step
for it; it waits for the word to go, and dies with its worker. It has a session of its own, so that all it started can
be ended together. Its result comes back through a pipe; the worker alone writes states.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import pwd
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from marin_rules.execution.drive import pickled
from marin_rules.execution.environment import enter_step_environment
from marin_rules.execution.frozen import FrozenPlan, FrozenStep
from marin_rules.execution.ranks import run_ranks, runs_in_ranks
from marin_rules.execution.step_call import Outcome, call_step, one_line
from marin_rules.execution.step_data import data_access

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Script:
    """The command of a hand-written rule: a text for an interpreter."""

    text: bytes
    interpreter: Sequence[str]


class StepProcess:
    """A step's process. Made first, for any step of the plan; told which one and to go once the lease is held."""

    def __init__(self, plan: FrozenPlan) -> None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # What the step leaves running becomes our child, and is ended.
        self._of_others = frozenset(descendants(os.getpid()))  # What an earlier step has left was told already.
        go_read, self._go = os.pipe()
        self.result, result_write = os.pipe()
        self.stdout, stdout_write = os.pipe()
        self.stderr, stderr_write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            for descriptor in (self._go, self.result, self.stdout, self.stderr):
                os.close(descriptor)
            _child(parent, go_read, result_write, stdout_write, stderr_write, plan)
        for descriptor in (go_read, result_write, stdout_write, stderr_write):
            os.close(descriptor)
        self.exit_status: int | None = None
        self.left: dict[int, str] = {}
        """Processes of the step that cannot be ended, because they run as another user."""

    def go(self, step: FrozenStep, script: Script | None, variables: Mapping[str, str]) -> None:
        """Let the step's code run, with these variables in its environment; those of the step itself win."""
        _send(self._go, (step.key, script, dict(variables)))
        self._go = -1  # Closed: its number may soon be that of a connection.

    def close(self) -> None:
        """Give the pipes of the ended process back."""
        for descriptor in (self._go, self.result, self.stdout, self.stderr):
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

    def stop(self, signal_number: int) -> None:
        """Send a signal to the step and to all that it started, except what has become another user's (`sudo`)."""
        for pid in descendants(os.getpid()):
            if send_signal(pid, signal_number):
                continue
            if pid not in self.left and pid not in self._of_others:
                self.left[pid] = describe_process(pid)
            if pid == self.pid and signal_number == signal.SIGKILL:
                self.exit_status = int(signal.SIGKILL)  # Nobody here can end it: waiting for that would never end.

    def kill(self) -> None:
        """End the step and all that it started, and wait until it has ended."""
        self.stop(signal.SIGKILL)
        while not self.ended():
            time.sleep(0.001)

    def outcome(self, data: bytes) -> Outcome:
        """What the process reported (`data` from its result pipe), or how it died."""
        status = self.exit_status or 0
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            hint = " (the kernel does that when memory runs out)" if number == signal.SIGKILL else ""
            return Outcome(error=f"its process was killed by {signal.Signals(number).name}{hint}")
        try:
            outcome = pickle.loads(data)
        except Exception:
            outcome = None
        if isinstance(outcome, Outcome):
            return outcome
        code = os.WEXITSTATUS(status)
        return Outcome(error=f"its process ended with exit code {code}") if code or not data else Outcome()


def _child(parent: int, go: int, result: int, stdout: int, stderr: int, plan: FrozenPlan) -> NoReturn:
    code = 1
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with os.fdopen(go, "rb") as pipe:
            order = pipe.read() if os.getppid() == parent else b""
        if not order:
            os._exit(0)  # The worker is gone, or found that there is nothing to do.
        key, script, variables = pickle.loads(order)
        step = plan.by_key[key]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        if os.path.isdir(plan.run.working_directory):
            os.chdir(plan.run.working_directory)
        os.environ.update(variables)
        enter_step_environment(step.environment)
        with data_access(plan, step):
            if script is not None:
                outcome = _run_script(script)
            elif runs_in_ranks(step):
                outcome = run_ranks(plan, step)
            else:
                outcome = call_step(plan, step)
        _send(result, outcome)
        code = 0 if outcome.error is None else 1
    except BaseException as error:
        traceback.print_exc()
        _send(result, Outcome(error=one_line(error), exception=pickled(error)))
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _run_script(script: Script) -> Outcome:
    """Run the command of a hand-written rule and wait for it."""
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
    return Outcome() if code == 0 else Outcome(error=f"the command of its rule ended with exit code {code}")


def _send(descriptor: int, message: object) -> None:
    """Send one message, and with it the end of the pipe."""
    data = pickle.dumps(message)
    while data:
        data = data[os.write(descriptor, data) :]
    os.close(descriptor)


def descendants(root: int) -> list[int]:
    """All processes below `root`, children before grandchildren."""
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


def adopt_orphans() -> None:
    """What a process below this one leaves behind becomes a child of this one."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    """Best effort: elsewhere than on Linux a step's stray processes are not found."""
    with contextlib.suppress(OSError, AttributeError):
        _LIBC.prctl(option, value, 0, 0, 0)
