"""Snakemake that starts at once: in processes forked from one that has imported it.

A start of Snakemake takes a second and a half of CPU, nearly all of it for imports, and the tests start it hundreds of
times. Imported are Snakemake, its plug-ins (ours among them) and its libraries. Some of these read variables while they
are imported: a run that has other values of such is started in the usual way.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SNAKEMAKE = Path(sys.executable).with_name("snakemake")

_SERVER = Path(__file__).with_name("warm_snakemake_process.py")

_READ_AT_THE_START = ("FSSPEC_", "HOME", "LANG", "LC_", "LD_", "PYTHON")
"""How the names of variables begin that are looked at only once, by the loader, by Python or by an import."""


class ForkedProcess:
    """A process that another one forked, with what a `subprocess.Popen` has."""

    def __init__(self, pid: int, ended: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = ended
        """A pipe, from which its exit code comes."""

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(SNAKEMAKE), timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            word = os.read(self._ended, 16)
            assert word, f"the process that forked {self.pid} is gone"
            os.close(self._ended)
            self.returncode = int(word)
        return self.returncode


class WarmSnakemake:
    """Forks runs of Snakemake from a process that is started with the first of them."""

    def __init__(self) -> None:
        self._variables = dict(os.environ)
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def can_run(self, command: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether a run that is forked is what it would be if it were started."""
        names = {name for name in {*env, *self._variables} if name.startswith(_READ_AT_THE_START)}
        return command[0] == str(SNAKEMAKE) and all(env.get(name) == self._variables.get(name) for name in names)

    def start(self, command: Sequence[str], cwd: Path, env: Mapping[str, str], output: int) -> ForkedProcess:
        """Run the command in a session of its own; what it prints goes to the descriptor `output`."""
        if self._requests is None:
            self._requests = self._start_server()
        ended, end = os.pipe()
        umask = os.umask(0)
        os.umask(umask)
        orders = {"command": list(command), "cwd": str(cwd), "variables": dict(env), "umask": umask}
        socket.send_fds(self._requests, [json.dumps(orders).encode()], [output, end])
        os.close(end)
        return ForkedProcess(int(self._requests.recv(16)), ended)

    def close(self) -> None:
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._process.wait()

    def _start_server(self) -> socket.socket:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, str(_SERVER), str(its.fileno())],
                env=self._variables,
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                start_new_session=True,
            )
        return ours
