"""An emulator's process: started with its standard input as its lifeline, and never left behind."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[3]

_START_SECONDS = 60.0
"""Importing moto takes some seconds on a busy machine; more than a minute means that it will not come up."""


class EmulatorProcess:
    """`python -m <module> <arguments>`, up and listening once constructed."""

    def __init__(self, module: str, *arguments: str) -> None:
        path = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.port = self._announced_port(module)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _announced_port(self, module: str) -> int:
        output = self._process.stdout
        assert output is not None
        readable, _, _ = select.select([output], [], [], _START_SECONDS)
        line = output.readline() if readable else b""
        if not line.strip().isdigit():
            self._process.kill()
            self._process.wait()
            raise RuntimeError(
                f"{module} did not announce a port: run `PYTHONPATH=tests python -m {module}` to see why"
            )
        return int(line)
