"""The process behind `warm_snakemake.WarmSnakemake`: has imported Snakemake, and forks processes that become it.

Requests come over a socket, each with two descriptors: one for the output, one for the exit code. This is a script, and
not a module of `support`, so that a forked process has the search path that `snakemake` itself starts with.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_IMPORTED = ("snakemake.cli", "snakemake.report.html_reporter", "fsspec", "jinja2", "jsonschema", "smart_open")
"""What every run of Snakemake imports, sooner or later; the first one brings the plug-ins."""

_LARGEST_REQUEST = 2**20


def serve(requests: socket.socket) -> tuple[dict[str, Any], int]:
    """Fork for each request until there are no more. Returns only in a forked process: its orders, and its output."""
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not requests:
                    selector.unregister(key.fileobj)
                    _report(key.fd, *key.data)
                    continue
                request, descriptors, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 2)
                if not request:
                    sys.exit()
                output, end = descriptors
                if (pid := os.fork()) == 0:
                    os.setsid()
                    requests.send(str(os.getpid()).encode())
                    requests.close()
                    return json.loads(request), output
                os.close(output)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, end))


def _report(pidfd: int, pid: int, end: int) -> None:
    """Say how a forked process has ended."""
    _, status = os.waitpid(pid, 0)
    os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
    os.close(end)
    os.close(pidfd)


def become(orders: dict[str, Any], output: int) -> None:
    """Be as a process that was just started."""
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(orders["cwd"])
    os.umask(orders["umask"])
    os.environ.clear()
    os.environ.update(orders["variables"])
    time.tzset()
    tempfile.tempdir = None
    importlib.invalidate_caches()
    sys.argv = orders["command"]
    sys.path[0] = str(Path(sys.argv[0]).parent)


if __name__ == "__main__":
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    become(*serve(socket.socket(fileno=int(sys.argv[1]))))
    runpy.run_path(sys.argv[0], run_name="__main__")
