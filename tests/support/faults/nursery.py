"""Real workers at a word, each forked from a process that has all imported: a hundred of them take seconds."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[2]
DEADLINE = 60.0
"""Seconds after which a worker will not end. Not reached when all is well."""


@dataclass(frozen=True)
class Worker:
    """A worker that was started."""

    pid: int
    step: str
    log: Path
    trace: Path

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def boundaries(self) -> list[str]:
        """The boundaries that it has come to, each with its number."""
        return self.trace.read_text().splitlines() if self.trace.exists() else []


class Nursery:
    """Workers for the steps of one plan: `blob/0`, `blob/1` and so on."""

    def __init__(
        self,
        folder: Path,
        prefix: str,
        count: int,
        environment: Mapping[str, str],
        turns: Path | None = None,
        tasks: int | None = None,
    ) -> None:
        """`tasks`: into how many the steps are divided."""
        self._folder = folder
        self._journal = folder / "journal"
        self._workers: list[Worker] = []
        command = [sys.executable, "-m", "support.faults.nursery_process", prefix, str(count), str(turns or "")]
        command += [] if tasks is None else [str(tasks)]
        self._log = (folder / "nursery.log").open("wb")
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        described = self._hear()
        self.plan = Path(described["plan"])
        self._steps: dict[str, dict[str, str]] = described["steps"]

    def key(self, step: str) -> str:
        return self._steps[step]["key"]

    def folder_of(self, step: str) -> str:
        """The step's output path."""
        return self._steps[step]["path"]

    def start(
        self,
        step: str,
        *,
        fatal: int | None = None,
        strike: int = signal.SIGKILL,
        task: int | None = None,
        begins: bool = False,
    ) -> Worker:
        """Start a worker on a step; at boundary number `fatal` it gets the signal `strike`.

        `task`: it is an element of a job array, with this task. `begins`: it is a driver that begins the array.
        """
        number = len(self._workers)
        log, trace = self._folder / f"worker-{number}.log", self._folder / f"worker-{number}.trace"
        orders = {"step": self.key(step), "fatal": fatal, "signal": int(strike), "journal": str(self._journal)}
        orders |= {"task": task, "begins": begins}
        answer = self._ask(orders | {"log": str(log), "trace": str(trace)})
        worker = Worker(answer["pid"], step, log, trace)
        self._workers.append(worker)
        return worker

    def wait(self, worker: Worker, seconds: float = DEADLINE) -> int:
        """The exit code of a worker, or minus the signal that killed it."""
        code = self.ends_within(worker, seconds)
        if code is None:
            pytest.fail(f"worker {worker.pid} still runs after {seconds} s:\n{worker.output}")
        return code

    def ends_within(self, worker: Worker, seconds: float) -> int | None:
        """The exit code of a worker, or None when it takes longer."""
        return self._ask({"pid": worker.pid, "seconds": seconds, "for_stop": False}).get("code")

    def stops(self, worker: Worker) -> bool:
        """Wait until a worker has been stopped; False when it has ended well before."""
        answer = self._ask({"pid": worker.pid, "seconds": DEADLINE, "for_stop": True})
        assert answer in ({"stopped": True}, {"code": 0}), f"{answer}\n{worker.output}"
        return "stopped" in answer

    def run(
        self, step: str, *, fatal: int | None = None, task: int | None = None, begins: bool = False
    ) -> tuple[int, Worker]:
        worker = self.start(step, fatal=fatal, task=task, begins=begins)
        return self.wait(worker), worker

    def close(self) -> None:
        self._process.communicate()  # The end of its input: it kills what is left and ends.
        self._log.close()

    def _ask(self, orders: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(orders).encode() + b"\n")
        self._process.stdin.flush()
        return self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            pytest.fail(f"the nursery is gone:\n{(self._folder / 'nursery.log').read_text()}")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer


def with_step(worker: Worker) -> list[int]:
    """The processes of a worker and its step."""
    words = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    return [worker.pid, *map(int, words)]


def send(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # A worker that goes on may end its step at once.
            os.kill(pid, number)
