"""GPUs of one machine, and the processes that share them."""

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from marin_rules.clusters.this_machine import GPU_VARIABLE
from marin_rules.errors import MarinRulesError
from marin_rules.worker import gpu_slots
from marin_rules.worker.gpu_slots import GpuSlots

DEADLINE = 30.0
"""Seconds after which something that was waited for will not come. Not reached when all is well."""

fork = multiprocessing.get_context("fork")

# A forked child here calls the system and nothing that another thread could have locked.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folder with the locks is made: apart from the GPUs that may be in use on this machine."""
    monkeypatch.setattr(gpu_slots, "PLACE", str(tmp_path))
    monkeypatch.delenv(gpu_slots.DEPTH_VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`machine("0", "1")` gives this machine GPUs of these names."""
    return lambda *names: monkeypatch.setenv(GPU_VARIABLE, ",".join(names))


class Holder:
    """A process that waits for GPUs, and has them until it is told to end."""

    def __init__(self, wanted: int, purpose: str) -> None:
        self._pipe, pipe = fork.Pipe()
        self.process = fork.Process(target=self._hold, args=(wanted, purpose, pipe), daemon=True)
        self.process.start()

    @staticmethod
    def _hold(wanted: int, purpose: str, pipe: Connection) -> None:
        slots, missing = GpuSlots(wanted, purpose), None
        while (now_missing := slots.try_take()) is not None:
            if now_missing != missing:
                pipe.send(("waits", now_missing))
                missing = now_missing
            time.sleep(0.005)
        pipe.send(("has", slots.names))
        pipe.recv()
        slots.release()

    def _told(self, word: str) -> object:
        give_up = time.monotonic() + DEADLINE
        while self._pipe.poll(max(0.0, give_up - time.monotonic())):
            said, what = self._pipe.recv()
            if said == word:
                return what
            assert (said, word) == ("waits", "has"), f"said {said!r}, not {word!r}: {what}"
        raise AssertionError(f"nobody {word} within {DEADLINE} s")

    def names(self) -> tuple[str, ...]:
        """The GPUs that it has got; waits for them."""
        names = self._told("has")
        assert isinstance(names, tuple)
        return names

    def missing(self) -> str:
        """What it waits for; waits until it has to."""
        return str(self._told("waits"))

    def end(self) -> None:
        self._pipe.send("end")
        self.process.join(DEADLINE)
        assert self.process.exitcode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.join(DEADLINE)
        assert self.process.exitcode == -signal.SIGKILL


@pytest.fixture
def hold() -> Iterator[Callable[..., Holder]]:
    """`hold(2, "train")` starts a process that wants two GPUs."""
    holders: list[Holder] = []

    def start(wanted: int, purpose: str = "step") -> Holder:
        holders.append(Holder(wanted, purpose))
        return holders[-1]

    yield start
    for holder in holders:
        holder.process.kill()
        holder.process.join()


@pytest.mark.processes
def test_each_gets_a_gpu_of_its_own_and_a_third_waits_until_one_ends(
    machine: Callable[..., None], hold: Callable[..., Holder]
) -> None:
    machine("0", "1")
    first, second = hold(1, "train"), hold(1, "evaluate")
    had = first.names()
    assert {had, second.names()} == {("0",), ("1",)}

    third = hold(1, "sample")
    missing = third.missing()
    assert missing.startswith("needs 1 of 0, 1, but ")
    assert f"{had[0]} is held by train (pid {first.process.pid})" in missing
    assert f"is held by evaluate (pid {second.process.pid})" in missing
    first.end()
    assert third.names() == had


@pytest.mark.processes
def test_what_a_killed_process_had_is_free(machine: Callable[..., None], hold: Callable[..., Holder]) -> None:
    machine("0", "1")
    first = hold(2)
    assert first.names() == ("0", "1")
    second = hold(2)
    assert second.missing()
    first.kill()
    assert second.names() == ("0", "1")


@pytest.mark.parametrize("names", [("0", "1"), ("GPU-8932f937-d72c", "MIG-GPU-8932f937/1/0"), ("..", "%2e/.")])
def test_who_asks_for_more_than_there_are_gets_all(names: tuple[str, ...], machine: Callable[..., None]) -> None:
    machine(*names)
    slots = GpuSlots(8, "train")
    assert slots.try_take() is None
    assert slots.names == names
    assert slots.variables[GPU_VARIABLE] == ",".join(names)
    assert slots.try_take() is None, "who has them already has them"
    assert GpuSlots(1, "evaluate").try_take() is not None
    slots.release()
    assert (slots.names, slots.variables) == ((), {})
    assert GpuSlots(1, "evaluate").try_take() is None


def test_where_there_are_none_nobody_waits_and_nothing_is_set(machine: Callable[..., None], place: Path) -> None:
    machine()
    for wanted in (0, 1):
        slots = GpuSlots(wanted, "train")
        assert slots.try_take() is None
        assert (slots.names, slots.variables) == ((), {})
    assert list(place.iterdir()) == []


def test_a_gpu_that_is_named_twice_is_one(machine: Callable[..., None]) -> None:
    machine("0", "0")
    slots = GpuSlots(2, "train")
    assert slots.try_take() is None
    assert slots.names == ("0",)


@pytest.mark.processes
def test_who_waits_for_two_leaves_the_free_one_to_others(
    machine: Callable[..., None], hold: Callable[..., Holder]
) -> None:
    machine("0", "1")
    first = hold(1)
    assert first.names() == ("0",)
    patient = hold(2)
    assert patient.missing()
    modest = hold(1)
    assert modest.names() == ("1",)
    first.end()
    modest.end()
    assert patient.names() == ("0", "1")


@pytest.mark.processes
def test_four_processes_that_want_two_of_three_all_get_them_and_never_the_same(
    machine: Callable[..., None], tmp_path: Path
) -> None:
    machine("0", "1", "2")
    barrier = fork.Barrier(4)

    def take_turns() -> None:
        barrier.wait(DEADLINE)
        for _ in range(25):
            slots = GpuSlots(2, "step")
            while slots.try_take() is not None:
                os.sched_yield()
            assert len(slots.names) == 2
            marks = [tmp_path / f"in-use-{name}" for name in slots.names]
            for mark in marks:
                mark.touch(exist_ok=False)  # Fails, and so does this process, when somebody else has the GPU.
            for mark in marks:
                mark.unlink()
            slots.release()

    processes = [fork.Process(target=take_turns, daemon=True) for _ in range(4)]
    for process in processes:
        process.start()
    last_moment = time.monotonic() + DEADLINE
    for process in processes:
        process.join(max(0.0, last_moment - time.monotonic()))
    exit_codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert exit_codes == [0] * 4


@pytest.mark.processes
def test_a_program_that_outlives_the_holder_does_not_keep_its_gpu(machine: Callable[..., None]) -> None:
    machine("0")
    script = """if True:
        import subprocess, sys
        from marin_rules.worker import gpu_slots
        gpu_slots.PLACE = sys.argv[1]
        slots = gpu_slots.GpuSlots(1, "train")
        assert slots.try_take() is None
        left_behind = subprocess.Popen(["sleep", "1000"], close_fds=False, stdout=subprocess.DEVNULL)
        print(left_behind.pid, flush=True)
        sys.stdin.read()
    """
    holder = subprocess.Popen(
        [sys.executable, "-c", script, gpu_slots.PLACE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    left_behind = int(holder.stdout.readline())
    try:
        slots = GpuSlots(1, "evaluate")
        assert slots.try_take() is not None
        holder.kill()
        holder.communicate(timeout=DEADLINE)
        assert slots.try_take() is None
        os.kill(left_behind, 0)  # It is still there.
    finally:
        os.kill(left_behind, signal.SIGKILL)


def test_a_run_inside_a_step_shares_out_the_gpus_of_that_step(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("0", "1", "2")
    outer = GpuSlots(2, "outer")
    assert outer.try_take() is None

    for name, value in outer.variables.items():
        monkeypatch.setenv(name, value)
    first, second, third = (GpuSlots(1, name) for name in ("first", "second", "third"))
    assert first.try_take() is None
    assert second.try_take() is None
    assert {first.names, second.names} == {("0",), ("1",)}
    assert third.try_take() is not None
    assert first.variables[gpu_slots.DEPTH_VARIABLE] == "2"


def make_link(path: Path) -> None:
    (path.parent / "elsewhere").mkdir(mode=0o700)
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("make", [make_link, Path.touch, functools.partial(Path.mkdir, mode=0o755)])
def test_a_folder_that_others_may_have_made_is_refused(
    make: Callable[[Path], None], machine: Callable[..., None], place: Path
) -> None:
    machine("0")
    make(place / f"marin-rules-gpus-{os.getuid()}")
    with pytest.raises(MarinRulesError, match=r"marin-rules-gpus-\d+ keeps the locks .* not a folder of yours alone"):
        GpuSlots(1, "train").try_take()
