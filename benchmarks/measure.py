"""What a command costs: wall seconds, CPU seconds of its process tree, and the least of several rounds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from benchmarks import ROOT

_LAST_CHARACTERS = 2000
_LIMIT_SECONDS = 600
"""A command that takes longer hangs."""


class BenchmarkError(Exception):
    """A measured command failed, or did not do what is to be measured."""


@dataclass(frozen=True)
class Usage:
    """The cost of one command, from its start to its end."""

    wall: float
    cpu: float
    """User and system seconds of the process and of all descendants that were waited for."""

    memory: float = field(default=0.0, kw_only=True)
    """The most that one of these processes had in memory, in megabytes."""


class Side(Protocol):
    """One side of a comparison: each call runs it once."""

    def __call__(self) -> Usage: ...


def run(
    command: Sequence[str], folder: Path, *, expect: str = "", environment: Mapping[str, str] | None = None
) -> Usage:
    """Run a command that must succeed and say `expect`."""
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**_environment(), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        with _ended_after(_LIMIT_SECONDS, process.pid):
            _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read().decode(errors="replace")
    if process.returncode != 0 or expect not in said:
        wanted = f"0 and the words {expect!r}" if expect else "0"
        raise BenchmarkError(
            f"{' '.join(command)}\nended with {process.returncode}, not with {wanted}:\n{said[-_LAST_CHARACTERS:]}"
        )
    return Usage(wall=wall, cpu=usage.ru_utime + usage.ru_stime, memory=usage.ru_maxrss / 1000)


@contextmanager
def _ended_after(seconds: float, session: int) -> Iterator[None]:
    """End a session of processes that takes too long, or that nobody waits for any more."""
    end = partial(os.killpg, session, signal.SIGKILL)
    alarm = threading.Timer(seconds, end)
    alarm.start()
    try:
        yield
    except BaseException:
        end()
        raise
    finally:
        alarm.cancel()


def fresh(what: str, folder: Path) -> dict[str, Any]:
    """What a function of `benchmarks.fresh` returns in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.fresh", what, str(folder)]
    answer = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True)
    if answer.returncode != 0:
        raise BenchmarkError(f"{' '.join(command)}\n{answer.stderr[-_LAST_CHARACTERS:]}")
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def least(rounds: int, **sides: Side) -> dict[str, Usage]:
    """Run the sides in turns (A B A B), and take the least wall and CPU seconds of each, and the most memory.

    Whatever else the machine does only ever adds, and in turns it adds to all sides alike.
    """
    usages: dict[str, list[Usage]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            usages[name].append(side())
    return {
        name: Usage(
            wall=min(usage.wall for usage in of_side),
            cpu=min(usage.cpu for usage in of_side),
            memory=max(usage.memory for usage in of_side),
        )
        for name, of_side in usages.items()
    }


def _environment() -> Mapping[str, str]:
    """Ours without what would change a run; and Python may keep bytecode, as it does for users."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MARIN_", "SNAKEMAKE_")) and name != "PYTHONDONTWRITEBYTECODE"
    }
