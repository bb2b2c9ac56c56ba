"""The daemons of a test cluster: started, waited for, stopped or killed, and quoted when they do not come up.

A daemon never outlives the process that started it, even if that one is killed. The processes of jobs may.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

START_SECONDS = 60.0
"""How long a daemon may take to come up or to end. Not reached when all is well, however busy the machine is."""

_LOG_LINES = 15


class DaemonError(RuntimeError):
    """A daemon did not come up, or did not end. The message closes with the end of its log."""


class Daemon:
    """A program that stays in the foreground and writes to `log`, or to its output before it can write a log."""

    def __init__(
        self, name: str, command: Sequence[str], *, folder: Path, log: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self._command = ["setpriv", "--pdeathsig", "KILL", *command]
        self._folder = folder
        self._log = log
        self._output = log.with_suffix(".out")
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Wait for the first True of `is_ready`, as long as the daemon runs and in reasonable time."""
        deadline = time.monotonic() + START_SECONDS
        while not is_ready():
            if not self.is_running:
                raise DaemonError(f"{self.name} ended while it was starting:\n{self.last_lines()}")
            if time.monotonic() > deadline:
                raise DaemonError(f"{self.name} is not ready after {START_SECONDS:.0f} s:\n{self.last_lines()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Let the daemon save its state and end."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise DaemonError(f"{self.name} did not end on SIGTERM and was killed:\n{self.last_lines()}") from None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def last_lines(self) -> str:
        lines: list[str] = []
        for path in (self._output, self._log):
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join(lines)
