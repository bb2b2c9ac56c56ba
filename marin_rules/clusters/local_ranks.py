"""Ranks that are processes of this machine: to try on a laptop what will run on several machines."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO

from marin_rules.clusters.ranks import RankCall, RanksEnd, Take, variables_for
from marin_rules.parentage import end_with_parent
from marin_rules.process import variable_of

_STOP_SECONDS = 3.0
"""How long the other ranks may take to end after one has failed, before they are killed."""

_LAST_OUTPUT_SECONDS = 1.0
"""How long to read from a program that a rank has left running with its output still open."""


@dataclass(frozen=True)
class LocalRanks:
    """A number of ranks, all on this machine."""

    count: int

    def run(self, call: RankCall, take: Take) -> RanksEnd:
        # Checked first: a child's report about a missing program occasionally gets lost.
        if shutil.which(call.start[0]) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), call.start[0])
        variables = variables_for(self.count, "127.0.0.1", call.purpose)
        events: queue.SimpleQueue[_Line | _End] = queue.SimpleQueue()
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(self.count):
                processes.append(self._start(call.words, variables, rank))
            readers = [thread for rank, process in enumerate(processes) for thread in _watched(rank, process, events)]
            return RanksEnd(_follow(processes, readers, events, take))
        finally:
            for process in processes:
                process.kill()
                process.wait()

    def close(self) -> None:
        """Nothing was created."""

    def _start(self, command: Sequence[str], variables: Mapping[str, str], rank: int) -> subprocess.Popen[bytes]:
        own = {"rank": rank, "local_rank": rank, "local_count": self.count}
        return subprocess.Popen(
            command,
            env={**os.environ, **variables, **{variable_of(name): str(value) for name, value in own.items()}},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=partial(end_with_parent, os.getpid()),  # No thread has been started yet.
        )


@dataclass(frozen=True)
class _Line:
    rank: int
    text: bytes


@dataclass(frozen=True)
class _End:
    rank: int
    code: int


def _follow(
    processes: Sequence[subprocess.Popen[bytes]],
    readers: Sequence[threading.Thread],
    events: queue.SimpleQueue[_Line | _End],
    take: Take,
) -> str | None:
    """Pass on what the ranks print until the last has ended; returns what went wrong first."""
    problem: str | None = None
    running = len(processes)
    kill_at = float("inf")
    while running:
        try:
            event = events.get(timeout=None if kill_at == float("inf") else max(0.0, kill_at - time.monotonic()))
        except queue.Empty:
            kill_at = float("inf")
            _signal_all(processes, signal.SIGKILL)
            continue
        if isinstance(event, _Line):
            take(event.rank, event.text)
            continue
        running -= 1
        if event.code != 0 and problem is None:
            problem = f"rank {event.rank} {_ending(event.code)}"
            _signal_all(processes, signal.SIGTERM)
            kill_at = time.monotonic() + _STOP_SECONDS
    give_up = time.monotonic() + _LAST_OUTPUT_SECONDS
    for reader in readers:
        reader.join(max(0.0, give_up - time.monotonic()))
    while not events.empty():
        event = events.get()
        if isinstance(event, _Line):
            take(event.rank, event.text)
    return problem


def _watched(
    rank: int, process: subprocess.Popen[bytes], events: queue.SimpleQueue[_Line | _End]
) -> list[threading.Thread]:
    """Two threads for a rank: its output may stay open when it has ended, and be closed long before."""
    assert process.stdout is not None
    reader = threading.Thread(target=_read, args=(rank, process.stdout, events), daemon=True)
    waiter = threading.Thread(target=lambda: events.put(_End(rank, process.wait())), daemon=True)
    reader.start()
    waiter.start()
    return [reader]


def _read(rank: int, output: IO[bytes], events: queue.SimpleQueue[_Line | _End]) -> None:
    with output:
        for line in output:
            events.put(_Line(rank, line))


def _signal_all(processes: Sequence[subprocess.Popen[bytes]], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
