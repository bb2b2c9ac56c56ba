"""The boundaries of a worker's I/O, inside the worker: it dies or stops at the one that was chosen.

On a local disk a boundary is the moment before a change (Python's audit events, and writes to open files), on an object
store the moment before and the moment after each call. The step's own process counts along: a boundary of its data is
one of its worker, and both of them die or stop together.
"""

from __future__ import annotations

import base64
import contextlib
import json
import multiprocessing
import os
import re
import signal
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

STEP_EVENT = "faults.step"
"""An audit event that a step raises where it wants a boundary."""

_CHANGES = ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.truncate")
_JOURNALED = re.compile(r"/\.executor_status$|/\.executor_tasks/.*\.json$")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Orders:
    """What a worker has to do to itself."""

    prefix: str
    fatal: int | None
    """Number of the boundary, from 1 on; None: go on to the end."""

    signal: int
    trace: str
    """A file that gets the name of each boundary."""

    journal: str
    """A file that gets each content that a local status or the record of a task is given: the disk keeps no history."""


class Boundaries:
    """Counts boundaries over the worker, its threads and its step."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._worker = os.getpid()
        self._passed = multiprocessing.get_context("fork").Value("i", 0)
        self._write = os.write
        self._trace = os.open(orders.trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def install(self) -> None:
        """From now on boundaries count, in this process and in all that it forks."""
        if "://" in self._orders.prefix:
            self._watch_stores()
        else:
            self._watch_disk()
        sys.addaudithook(self._on_step_event)

    def reach(self, name: str) -> None:
        with self._passed.get_lock():
            self._passed.value += 1
            number = self._passed.value
            self._write(self._trace, f"{number} {name}\n".encode())
        if number == self._orders.fatal:
            self._strike()

    def _strike(self) -> None:
        here = os.getpid()
        others = [self._worker] if here != self._worker else _children(here)
        if self._orders.signal == signal.SIGKILL and here == self._worker:
            others = []  # The step must die with its worker by itself.
        for pid in (*others, here):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, self._orders.signal)

    # -- local disk ------------------------------------------------------------------------------------------

    def _watch_disk(self) -> None:
        sys.addaudithook(self._on_disk_event)
        for name in ("write", "fsync"):
            setattr(os, name, self._before_descriptor_call(name, getattr(os, name)))

    def _on_disk_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str) and path.startswith(self._orders.prefix) and flags & _WRITING:
                self.reach(f"open {path}")
        elif event in _CHANGES:
            paths = [item for item in arguments if isinstance(item, str)]
            if any(path.startswith(self._orders.prefix) for path in paths):
                self.reach(f"{event} {' '.join(paths)}")
                if event == "os.rename" and _JOURNALED.search(paths[-1]):
                    self._keep(*paths)

    def _keep(self, source: str, target: str) -> None:
        with open(source, "rb") as file:
            line = json.dumps([target, base64.b64encode(file.read()).decode()]) + "\n"
        descriptor = os.open(self._orders.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._write(descriptor, line.encode())
        os.close(descriptor)

    def _before_descriptor_call(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(descriptor: int, *arguments: Any) -> Any:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                path = os.readlink(f"/proc/self/fd/{descriptor}")
                if path.startswith(self._orders.prefix):
                    self.reach(f"{name} {path}")
            return call(descriptor, *arguments)

        return called

    # -- object stores ---------------------------------------------------------------------------------------

    def _watch_stores(self) -> None:
        import aiohttp
        import botocore.httpsession
        import requests

        self._around(requests.Session, "send")
        self._around(botocore.httpsession.URLLib3Session, "send")
        request = aiohttp.ClientSession._request

        async def requested(session: Any, method: str, url: Any, *arguments: Any, **options: Any) -> Any:
            self.reach(f"before the step's {method} {url}")
            answer = await request(session, method, url, *arguments, **options)
            self.reach(f"after the step's {method} {url}")
            return answer

        aiohttp.ClientSession._request = requested  # type: ignore[method-assign, assignment]

    def _around(self, owner: Any, name: str) -> None:
        send = getattr(owner, name)

        def sent(session: Any, request: Any, *arguments: Any, **options: Any) -> Any:
            self.reach(f"before {request.method} {request.url}")
            answer = send(session, request, *arguments, **options)
            self.reach(f"after {request.method} {request.url}")
            return answer

        setattr(owner, name, sent)

    def _on_step_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == STEP_EVENT:
            self.reach(" ".join(map(str, arguments)))


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]
