"""Steps that the driver hands to the warm workers itself, without a process of their own for each.

A job that Snakemake starts is a shell, which takes longer to start than a small step takes to run. The driver therefore
writes its requests into the server's pipe as a job does (`run-step`), and reads the answers to all of them from one.
Like a job, a step that was begun outlives a driver that is killed.

Jobs are in the driver's process group, so that what stops the group (Ctrl-C in a terminal, `timeout`, `kill -- -GROUP`)
stops them. For all steps that have no job, one small process is in that group and passes such signals on.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
from collections.abc import Sequence

from marin_rules.worker.warm.client import ANSWERS, DRIVER, QUIET, REQUESTS, STOP, WarmServer

_LONGEST_REQUEST = 3000
"""More bytes than this may not be written in one piece, next to the requests of others."""

_LOOK_SECONDS = 2.0
"""How often to check whether anything is still there to answer."""

_WORKER_IS_GONE = 1
"""The exit code of a step whose worker has gone without an answer."""

_STAND_IN = f"""
exec 3<>"$1/{REQUESTS}" 4<>"$1/{QUIET}"
trap 'echo {STOP} >&3; exit' TERM INT HUP
while kill -0 "$2" 2>/dev/null; do read -r -t 5 <&4; done
"""
"""Waits on a pipe that stays empty, for a signal or for the end of the server. Steps that arrive after a signal, which
may have been meant for this process alone, get jobs of their own."""


class _Request:
    """What is known of one step that was handed over."""

    def __init__(self) -> None:
        self.worker: int | None = None
        self.code: int | None = None
        self.answered = threading.Event()


class Dispatcher:
    """Hands steps to the workers of one server. `OSError` if the process that passes signals on cannot be started."""

    def __init__(self, server: WarmServer) -> None:
        self._server = server
        self._numbers = itertools.count()
        self._pending: dict[str, _Request] = {}
        # Opened so, neither end waits for the other, nor ends because the other is gone.
        self._requests = os.open(os.path.join(server.folder, REQUESTS), os.O_RDWR)
        self._answers = os.open(os.path.join(server.folder, ANSWERS), os.O_RDWR)
        self._stand_in = subprocess.Popen(
            ["bash", "-c", _STAND_IN, "marin-rules", server.folder, str(server.pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def run(self, arguments: Sequence[str]) -> int | None:
        """Run a step and return its exit code. None: no worker has taken it up, and nothing has changed."""
        name = f"{DRIVER}{next(self._numbers)}"
        line = "\t".join([name, *arguments]).encode() + b"\n"
        if len(line) > _LONGEST_REQUEST or any("\n" in text or "\t" in text for text in arguments):
            return None
        if not self._server.is_ready or self._stand_in.poll() is not None:
            return None
        request = self._pending[name] = _Request()
        try:
            os.write(self._requests, line)
            while not request.answered.wait(_LOOK_SECONDS):
                if not self._is_attended(request) and not request.answered.wait(_LOOK_SECONDS):
                    return None if request.worker is None else _WORKER_IS_GONE
            return None if request.worker is None else request.code
        finally:
            del self._pending[name]

    def stop_steps(self) -> None:
        """Let all steps end that were handed over, and all that still are."""
        with contextlib.suppress(OSError):
            os.write(self._requests, f"{STOP}\n".encode())

    def close(self) -> None:
        """No step is running any more."""
        self._stand_in.kill()
        self._stand_in.wait()
        os.write(self._answers, b"\n")
        self._reader.join()
        os.close(self._answers)
        os.close(self._requests)

    def _is_attended(self, request: _Request) -> bool:
        """Whether something can still answer: its worker, or else the server that looks for one."""
        if request.worker is None:
            return self._server.is_ready
        try:
            os.kill(request.worker, 0)
        except OSError:
            return False
        return True

    def _read(self) -> None:
        """Pass answers on (`driver.7 pid 123`, `driver.7 exit 0`) until an empty line comes."""
        with os.fdopen(os.dup(self._answers), "rb", buffering=0) as pipe:
            unread = b""
            while True:
                *lines, unread = (unread + pipe.read(1 << 16)).split(b"\n")
                for line in lines:
                    if not line:
                        return
                    name, word, number = line.decode().split()
                    request = self._pending.get(name)
                    if request is None:
                        continue  # It was given up.
                    if word == "pid":
                        request.worker = int(number)
                    else:
                        request.code = int(number)
                        request.answered.set()
