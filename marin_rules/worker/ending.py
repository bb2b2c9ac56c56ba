"""How a worker ends a step's process: it asks it to stop, waits, and finally kills it.

A stop signal is passed on to all processes of the step, which have some time to save what they have. A function that
has returned has some time for its threads and exit handlers, longer than anything should need. What is still running
after that is killed.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable

from marin_rules.worker.conclusion import Conclusion, conclude, is_through
from marin_rules.worker.step_process import Returned, StepProcess, send_signal

STOP_GRACE_SECONDS = 4.0
JOB_STOP_GRACE_SECONDS = 20.0
"""How long a step may take to end after SIGTERM, before it is killed: here, where a person waits for it, and in a job
of a cluster, where it may have a large checkpoint to write. Clusters give a job about 30 s, or what the site says."""

_TELL_SECONDS = 10.0
"""How long a process may take to end before the wait is reported."""

_OVERDUE_SECONDS = 5.0
"""How much longer than allowed a process has to end itself, with the stacks of its threads in the log."""

_STRAY_SECONDS = 1.0
"""How long helpers of a library (such as the resource tracker of `multiprocessing`) may take to end after a step."""

_HELPER_SECONDS = 5.0
_HELPER_POLL_SECONDS = 0.01
"""How long the helpers of `multiprocessing` may take to clean up after a step, and how often they are checked."""


def tell_seconds(returned: Returned | None) -> float:
    """After how many seconds people are told what the end of a step waits for."""
    return _TELL_SECONDS if returned is None else min(_TELL_SECONDS, returned.end_seconds / 2)


class Ending:
    """Watches over the end of one step's process."""

    def __init__(self, process: StepProcess, say: Callable[[str], None], grace_seconds: float) -> None:
        self._process = process
        self._say = say
        self._grace_seconds = grace_seconds
        self._stop_signal = 0
        self._was_told = False
        """Whether the stop signal was passed on to the step before that was through."""

        self._kill_at = float("inf")
        self._returned_at: float | None = None
        self._tell_at = float("inf")

    @property
    def due(self) -> float:
        """When (by the monotonic clock) there is something to do."""
        return min(self._kill_at, self._tell_at)

    def watch(self, stop_signal: int) -> None:
        """Do what is due now. `stop_signal` is the signal that this worker received, 0 for none."""
        now = time.monotonic()
        returned = self._process.returned
        if returned is not None and self._returned_at is None:
            self._returned_at = now
            if self._kill_at == float("inf"):
                self._kill_at = now + returned.end_seconds + _OVERDUE_SECONDS
            self._tell_at = now + tell_seconds(returned)
        if stop_signal and not self._stop_signal:
            self._stop_signal = stop_signal
            self._stop(now)
        if now >= self._tell_at and returned is not None:
            self._tell_at = float("inf")
            waits_for = ", ".join(returned.lingering) or "its exit handlers"
            limit = f"at most {returned.end_seconds:.0f} s"
            self._say(f"its function has returned; its process waits for {waits_for} before it ends ({limit})")
        if now >= self._kill_at:
            self._process.stop(signal.SIGKILL)
            self._kill_at = now + self._grace_seconds

    def _stop(self, now: float) -> None:
        """Pass a stop signal on, unless the step is through and only its process has yet to end."""
        self._process.read_report()
        returned = self._process.returned
        if returned is None or returned.lingering:
            self._was_told = True
            self._process.stop(signal.SIGTERM)
        self._kill_at = min(self._kill_at, now + self._grace_seconds)

    def conclude(self) -> Conclusion:
        """Judge the process, which has ended, and end what it has left running."""
        process = self._process
        process.read_report()
        ending_seconds = 0.0 if self._returned_at is None else time.monotonic() - self._returned_at
        strays = self._strays()
        strays = {pid: strays[pid] for pid in _without_helpers(strays)}
        process.stop(signal.SIGKILL)
        ended = [name for pid, name in strays.items() if pid not in process.left]
        if ended:
            self._say(f"left processes running, which were ended: {', '.join(ended)}")
        exit_status = process.exit_status or 0
        return conclude(
            process.returned,
            exit_status,
            stop_signal=self._stop_signal if self._was_told or not is_through(exit_status) else 0,
            ending_seconds=ending_seconds,
        )

    def _strays(self) -> dict[int, str]:
        """What the step has left running: process -> name. What ends with its parent has a moment to do so."""
        give_up = time.monotonic() + _STRAY_SECONDS
        while strays := {pid: name for pid in self._process.started() if (name := _name(pid))}:
            if time.monotonic() > give_up:
                break
            time.sleep(0.01)
        return strays


def _without_helpers(strays: Iterable[int]) -> list[int]:
    """Let the helpers of `multiprocessing` clean up (shared memory, semaphores); returns what has not ended on its own.

    They end when the last process is gone that could need them; so the other processes are ended here.
    """
    helpers = list(filter(_is_helper, strays))
    others = [pid for pid in strays if pid not in helpers and _name(pid) is not None]
    if helpers:
        for pid in others:
            send_signal(pid, signal.SIGKILL)
    give_up = time.monotonic() + _HELPER_SECONDS
    while any(map(_name, helpers)) and time.monotonic() < give_up:
        time.sleep(_HELPER_POLL_SECONDS)
    return others + [pid for pid in helpers if _name(pid) is not None]


def _is_helper(pid: int) -> bool:
    """Whether this is a process that Python's `multiprocessing` started for itself."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read(4096)
    except OSError:
        return False
    return any(
        b"from multiprocessing.%s import main" % module in command for module in (b"resource_tracker", b"forkserver")
    )


def _name(pid: int) -> str | None:
    """The name of a running process for people; None for one that has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            name, _, rest = file.read().partition("(")[2].rpartition(")")
    except OSError:
        return None
    return None if rest.split()[0] in "ZX" else f"{name} (pid {pid})"
