"""Ends all processes of a node as a power cut does: at once, and none gets to report its end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_PROC = Path("/proc")


def namespace_of(pid: int | str) -> str | None:
    """The namespace of host names in which a process runs; None when the process is gone."""
    try:
        return os.readlink(_PROC / str(pid) / "ns" / "uts")
    except OSError:
        return None


def kill_all_in(namespace: str) -> None:
    """Kill every process of a namespace, which is not that of this process."""
    if namespace == namespace_of("self"):
        raise ValueError("this would end the tests, too")
    # A worker would write down the end of its step, a job's daemon that of the job: all are stopped before the first is
    # killed, and the daemons are killed last.
    job_daemons = {pid for pid in _processes_in(namespace) if _name(pid) == "slurmstepd"}
    _send(_processes_in(namespace) | job_daemons, signal.SIGSTOP)
    while others := _processes_in(namespace) - job_daemons:
        _send(others, signal.SIGKILL)
        time.sleep(0.001)
    _send(job_daemons, signal.SIGKILL)


def _processes_in(namespace: str) -> set[int]:
    numbers = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    return {number for number in numbers if namespace_of(number) == namespace}


def _name(pid: int) -> str | None:
    try:
        return (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return None


def _send(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
