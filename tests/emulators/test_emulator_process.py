"""An emulator's process ends with the process that started it, whatever it is doing."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from support.emulators.gcs.emulator import GcsEmulator

TESTS = Path(__file__).resolve().parents[1]


def _hanging_call(emulator_url: str) -> socket.socket:
    host, port = emulator_url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(b"GET /storage/v1/b/hanging HTTP/1.1\r\nHost: x\r\n\r\n")
    return connection


def _wait_for_calls(emulator: GcsEmulator) -> None:
    deadline = time.monotonic() + 10
    while not emulator.calls():
        assert time.monotonic() < deadline, "the call did not arrive"
        time.sleep(0.01)


def _is_gone_within(seconds: float, emulator_url: str) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            _hanging_call(emulator_url).close()
        except ConnectionError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.processes
def test_closing_ends_it_although_a_call_hangs() -> None:
    emulator = GcsEmulator()
    emulator.inject("hang")
    with _hanging_call(emulator.url) as connection:
        _wait_for_calls(emulator)
        started = time.monotonic()
        emulator.close()
        assert time.monotonic() - started < 5
        assert connection.recv(100) == b""
    with pytest.raises(OSError, match="refused"):
        _hanging_call(emulator.url)


@pytest.mark.processes
def test_it_ends_when_the_process_that_started_it_is_killed() -> None:
    # A forked child inherits the pipe that is the emulator's lifeline, and keeps it open: the worst case.
    code = """
    import os, sys, time
    from support.emulators.gcs.emulator import GcsEmulator
    emulator = GcsEmulator()
    child = os.fork()
    if child == 0:
        os.closerange(0, 3)
        time.sleep(20)
        os._exit(0)
    print(emulator.url, child, flush=True)
    time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=TESTS, text=True) as parent:
        assert parent.stdout is not None
        url, child = parent.stdout.readline().split()
        try:
            _hanging_call(url).close()
            parent.send_signal(signal.SIGKILL)
            parent.wait(10)
            assert _is_gone_within(10, url)
        finally:
            subprocess.run(["kill", "-9", child], check=False)
