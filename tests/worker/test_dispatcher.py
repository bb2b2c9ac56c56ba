"""Steps that the driver hands over itself: each gets its own answer, and none is lost when somebody dies."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from marin_rules.worker.warm import dispatcher as module
from marin_rules.worker.warm.client import ANSWERS, QUIET, REQUESTS, WarmServer
from marin_rules.worker.warm.dispatcher import Dispatcher

pytestmark = pytest.mark.processes


class FakeServer:
    """A server that does what a test says."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.pid = os.getpid()
        self.is_ready = True
        for name in (REQUESTS, ANSWERS, QUIET):
            os.mkfifo(folder / name)
        self._requests = os.open(folder / REQUESTS, os.O_RDWR)
        self._unread = b""

    def request(self) -> list[str]:
        """The next request."""
        while b"\n" not in self._unread:
            self._unread += os.read(self._requests, 1 << 16)
        line, self._unread = self._unread.split(b"\n", 1)
        return line.decode().split("\t")

    def answer(self, text: str) -> None:
        with open(Path(self.folder) / ANSWERS, "w") as file:
            file.write(f"{text}\n")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.05)
    return FakeServer(tmp_path)


@pytest.fixture
def dispatcher(server: FakeServer) -> Iterator[Dispatcher]:
    made = Dispatcher(cast(WarmServer, server))
    yield made
    made.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def test_each_step_gets_its_own_answer(server: FakeServer, dispatcher: Dispatcher, pool: ThreadPoolExecutor) -> None:
    codes = {str(number): pool.submit(dispatcher.run, ["--step", str(number)]) for number in range(8)}
    requests = [server.request() for _ in codes]
    for name, _, _ in requests:
        server.answer(f"{name} pid {os.getpid()}")
    for name, _, step in reversed(requests):
        server.answer(f"{name} exit {step}")
    assert {step: code.result(timeout=60) for step, code in codes.items()} == {str(n): n for n in range(8)}


@pytest.mark.parametrize("arguments", [["x" * 4000], ["two\nlines"], ["a\ttab"]])
def test_what_a_pipe_cannot_carry_is_left_to_a_job(dispatcher: Dispatcher, arguments: list[str]) -> None:
    assert dispatcher.run(arguments) is None


def test_without_a_server_steps_are_left_to_jobs(server: FakeServer, dispatcher: Dispatcher) -> None:
    server.is_ready = False
    assert dispatcher.run(["--step", "a"]) is None


def test_a_server_that_dies_before_a_worker_has_the_step(
    server: FakeServer, dispatcher: Dispatcher, pool: ThreadPoolExecutor
) -> None:
    code = pool.submit(dispatcher.run, ["--step", "a"])
    server.request()
    server.is_ready = False
    assert code.result(timeout=60) is None


def test_a_step_goes_on_when_only_the_server_dies(
    server: FakeServer, dispatcher: Dispatcher, pool: ThreadPoolExecutor
) -> None:
    code = pool.submit(dispatcher.run, ["--step", "a"])
    name, *_ = server.request()
    server.answer(f"{name} pid {os.getpid()}")
    server.is_ready = False
    server.answer(f"{name} exit 0")
    assert code.result(timeout=60) == 0


def test_a_worker_that_is_gone_has_failed(server: FakeServer, dispatcher: Dispatcher, pool: ThreadPoolExecutor) -> None:
    worker = subprocess.Popen([sys.executable, "-c", ""])
    worker.wait()
    code = pool.submit(dispatcher.run, ["--step", "a"])
    name, *_ = server.request()
    server.answer(f"{name} pid {worker.pid}")
    assert code.result(timeout=60) == 1


def test_a_step_that_was_refused_before_a_worker_had_it_is_left_to_a_job(
    server: FakeServer, dispatcher: Dispatcher, pool: ThreadPoolExecutor
) -> None:
    code = pool.submit(dispatcher.run, ["--step", "a"])
    name, *_ = server.request()
    server.answer(f"{name} exit 143")
    assert code.result(timeout=60) is None


def test_all_steps_can_be_stopped(server: FakeServer, dispatcher: Dispatcher) -> None:
    dispatcher.stop_steps()
    assert server.request() == ["stop"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_group_stops_the_steps(number: int, server: FakeServer, dispatcher: Dispatcher) -> None:
    """A process in the driver's group passes it on, and ends. Until it has set its traps, it does so without a word."""
    stand_in: Any = dispatcher._stand_in
    assert os.getpgid(stand_in.pid) == os.getpgrp()
    heard: list[list[str]] = []
    listener = threading.Thread(target=lambda: heard.append(server.request()), daemon=True)
    listener.start()
    _await_trap(stand_in.pid, number)
    os.kill(stand_in.pid, number)
    listener.join(60)
    assert heard == [["stop"]]
    stand_in.wait(60)
    assert dispatcher.run(["--step", "a"]) is None


def test_without_the_process_that_passes_signals_on_steps_are_left_to_jobs(dispatcher: Dispatcher) -> None:
    stand_in: Any = dispatcher._stand_in
    stand_in.kill()
    stand_in.wait()
    assert dispatcher.run(["--step", "a"]) is None


def _await_trap(pid: int, number: int) -> None:
    """Until a process catches a signal, which it says itself."""
    while True:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = int(next(line for line in lines if line.startswith("SigCgt")).split()[1], 16)
        if caught >> (number - 1) & 1:
            return
