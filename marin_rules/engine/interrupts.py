"""Signals that stop a run: the first one ends the run and its jobs, echoes of it are ignored.

Ctrl-C in a terminal reaches the driver, Snakemake and all jobs at once; a signal from systemd, `timeout` or `kill` only
one of them. Snakemake itself waits for its local jobs without signalling them, so that is done here. SIGTERM to
`snakemake` keeps Snakemake's own meaning: what runs is finished, nothing new is started.

The engine of a submitted driver obeys only its supervisor (`driver.supervisor`): a cluster that takes a machine
away sends SIGTERM to all processes on it, and the supervisor finds out what that means. SIGUSR2 then stops the run as
Ctrl-C would; after SIGUSR1 the jobs of the cluster continue, and the run takes them over when it starts again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from types import FrameType

from marin_rules.driver.supervision import LEAVE, STOP, is_supervised
from marin_rules.worker.step_process import descendants

_ECHO_SECONDS = 3.0
"""How much later the same request to stop may arrive again by another route. A person who presses Ctrl-C after that
means it."""

_WAKE_UP_AFTER = (0.0, 0.1, 0.5, 2.0)
"""Seconds after a signal at which the main thread is woken up: it may fall asleep just as it is woken."""

_FROM_OUTSIDE = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)

_LOOK_SECONDS = 0.1
_JOBS = (b"run-step", b"marin_rules.worker")
"""Command lines of the processes that jobs of steps start."""


class Interrupts:
    """What has stopped this run, if anything, and what the signals that stop runs do."""

    def __init__(self) -> None:
        self._stopped_at: float | None = None
        self._finishes_gracefully = False
        self._is_over = False
        self._terminate_stops = False
        self.leaves_jobs = False
        """The run was told to end so that it can continue later: jobs elsewhere must not be cancelled."""

        self._noted_signals: int | None = None
        """The end of a pipe into which Python writes the number of each signal that comes."""

    def came(self) -> bool:
        """Whether this run was told to stop."""
        return self._stopped_at is not None or self._finishes_gracefully

    def end(self) -> None:
        """Everything is done: a request to stop that arrives now has nothing left to stop."""
        self._is_over = True

    def install(self, *, terminate_stops: bool = False) -> None:
        """Handle the signals that stop a run, from now on; those that are ignored (nohup) stay so."""
        self._terminate_stops = self._terminate_stops or terminate_stops
        if threading.current_thread() is not threading.main_thread():
            return
        if is_supervised():
            for number in _FROM_OUTSIDE:
                signal.signal(number, _disregard)
            signal.signal(LEAVE, self._leave)
            signal.signal(STOP, self._stop)
        else:
            for number in (signal.SIGINT, signal.SIGHUP, *([signal.SIGTERM] if self._terminate_stops else [])):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, self._stop)
        self._let_signals_wake_the_main_thread()

    def take_terminate_over(self) -> None:
        """Snakemake has just set its own handler of SIGTERM: replace it, or make it safe."""
        if threading.current_thread() is not threading.main_thread():
            return
        if is_supervised() or self._terminate_stops:
            signal.signal(signal.SIGTERM, _disregard if is_supervised() else self._stop)
            return
        finish_gracefully = signal.getsignal(signal.SIGTERM)
        if callable(finish_gracefully):
            # It takes a lock that this very thread may hold: in a thread of its own it waits for it.
            def handle(number: int, frame: FrameType | None) -> None:
                self._finishes_gracefully = True
                threading.Thread(target=finish_gracefully, args=(number, None), daemon=True).start()

            signal.signal(signal.SIGTERM, handle)

    def _let_signals_wake_the_main_thread(self) -> None:
        """Python runs handlers in its main thread, and leaves that asleep if another thread has taken the signal.

        Snakemake's main thread sleeps until a job ends. Two signals at once are enough: then the kernel gives them to
        two threads, or both to the other one.
        """
        if self._noted_signals is not None:
            return
        read, self._noted_signals = os.pipe()
        os.set_blocking(self._noted_signals, False)
        signal.signal(signal.SIGURG, _disregard)
        signal.set_wakeup_fd(self._noted_signals, warn_on_full_buffer=False)
        main = threading.get_ident()
        threading.Thread(target=_wake_up, args=(main, read), daemon=True).start()

    def _leave(self, number: int, frame: FrameType | None) -> None:
        self.leaves_jobs = self.leaves_jobs or self._stopped_at is None
        self._stop(number, frame)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._is_over or is_echo(self._stopped_at, now):
            return
        self._stopped_at = now
        told = {pid for pid in _own_group() if _tell(pid)}
        threading.Thread(target=_tell_late_jobs, args=(told,), daemon=True).start()
        raise KeyboardInterrupt


INTERRUPTS = Interrupts()
"""Those of this process. A global, because `python -m marin_rules.engine` handles signals before Snakemake reads the
Snakefile, and Snakemake hands nothing on from the one to the other."""


def _disregard(number: int, frame: FrameType | None) -> None:
    """For a signal that means nothing to this process. If it were ignored, it would also be ignored in all jobs."""


def is_echo(stopped_at: float | None, now: float) -> bool:
    """Whether a signal repeats an earlier one, rather than insisting."""
    return stopped_at is not None and now - stopped_at < _ECHO_SECONDS


def _wake_up(thread: int, signals: int) -> None:
    """Wake a thread whenever a signal that stops a run has arrived."""
    while numbers := os.read(signals, 4096):
        if not {*_FROM_OUTSIDE, LEAVE, STOP}.isdisjoint(numbers):
            for seconds in _WAKE_UP_AFTER:
                time.sleep(seconds)
                signal.pthread_kill(thread, signal.SIGURG)


def _own_group() -> list[int]:
    """The processes below this one that Ctrl-C in a terminal would reach as well."""
    group = os.getpgrp()
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == group:
                found.append(pid)
    return found


def _tell(pid: int) -> bool:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGTERM)
        return True
    return False


def _tell_late_jobs(told: set[int]) -> None:
    """Jobs that were just being started have not received it."""
    while True:
        time.sleep(_LOOK_SECONDS)
        for pid in _own_group():
            if pid not in told and _is_job(pid) and _tell(pid):
                told.add(pid)


def _is_job(pid: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        command = file.read()
        return any(word in command for word in _JOBS)
    return False
