"""A virtual machine of an emulated service: a folder, and processes that carry its mark.

Everything that a program on it starts inherits the mark, whatever session or parent it has by then. So a machine that
is taken away takes all of them with it, and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_MARK = "EMULATED_MACHINE"

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "SSL_CERT_FILE", "PIP_", "UV_")
"""Of this process's own variables: how programs and packages are found. A machine has nothing else of ours."""

_DRAIN_SECONDS = 0.5
"""How long the output of a program that has ended is waited for: something it left behind may hold the pipe."""

_LONGEST_LINE = 2**20


class Machine:
    """One virtual machine, from its first program to its end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_gone = False
        self._mark = secrets.token_hex(8)
        self._sessions: set[int] = set()
        """Those of its programs: the mark of a process cannot be read while it begins another program."""

        folder.mkdir(parents=True)

    async def run(
        self, words: Sequence[str], variables: Mapping[str, str], take: Callable[[str], None], cwd: Path | None = None
    ) -> int:
        """Run a program to its end; its exit code as a shell has it. Each line that it prints is passed to `take`."""
        own = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                cwd=cwd or self.folder,
                env={**own, "HOME": str(self.folder), **variables, _MARK: self._mark},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                limit=_LONGEST_LINE,
            )
        except OSError as error:
            take(f"{words[0]}: {error.strerror}")
            return 127
        assert process.stdout is not None
        self._sessions.add(process.pid)
        if self.is_gone:
            self.take_away()
        reading = asyncio.ensure_future(_read(process.stdout, take))
        code = await process.wait()
        self._sessions.discard(process.pid)
        await asyncio.wait({reading}, timeout=_DRAIN_SECONDS)
        reading.cancel()
        return code if code >= 0 else 128 - code

    def processes(self) -> list[int]:
        """All that runs on it."""
        mark = f"{_MARK}={self._mark}".encode()
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):  # It is gone, or not ours to see.
                if mark in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.append(int(name))
        return found

    def signal(self, number: signal.Signals) -> None:
        """A signal to all that runs on it, as when it is shut down."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def take_away(self) -> None:
        """Cut its power."""
        self.is_gone = True
        for session in self._sessions:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(session, signal.SIGKILL)
        while self.processes():
            self.signal(signal.SIGKILL)


async def _read(stream: asyncio.StreamReader, take: Callable[[str], None]) -> None:
    async for line in stream:
        take(line.decode(errors="replace").rstrip("\n"))
