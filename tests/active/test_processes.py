"""Signals reach the very process that is meant, and no other."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from marin_rules.active.processes import LocalProcess, can_be_seen, is_from_before_a_restart
from marin_rules.storage.leases.owner import Owner
from support.lease_models.clock import elsewhere


def owner_of(pid: int) -> Owner:
    with open(f"/proc/{pid}/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    return replace(Owner.current(), pid=pid, start_ticks=ticks)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits, in a session of its own."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.fixture
def found(child: subprocess.Popen[bytes]) -> Iterator[LocalProcess]:
    process = LocalProcess.find(owner_of(child.pid))
    assert process is not None
    with contextlib.closing(process):
        yield process


@pytest.mark.processes
def test_a_process_gets_its_signal(found: LocalProcess, child: subprocess.Popen[bytes]) -> None:
    assert found.pid == child.pid
    assert not found.has_ended()
    found.send(signal.SIGTERM)
    assert found.has_ended(within=30)
    assert child.wait() == -signal.SIGTERM
    found.send(signal.SIGTERM)  # Once more is no error.


@pytest.mark.processes
def test_a_halted_process_gets_its_signal(found: LocalProcess, child: subprocess.Popen[bytes]) -> None:
    os.kill(child.pid, signal.SIGSTOP)
    found.send(signal.SIGTERM)
    assert child.wait(30) == -signal.SIGTERM


@pytest.mark.processes
def test_a_later_process_with_the_same_number_is_not_found(child: subprocess.Popen[bytes]) -> None:
    owner = owner_of(child.pid)
    assert owner.start_ticks is not None
    assert LocalProcess.find(replace(owner, start_ticks=owner.start_ticks - 1)) is None


@pytest.mark.processes
def test_a_process_that_has_ended_is_not_found(child: subprocess.Popen[bytes]) -> None:
    owner = owner_of(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert LocalProcess.find(owner) is None, "nobody has waited for it yet"
    child.wait()
    assert LocalProcess.find(owner) is None


def test_which_processes_can_be_seen_from_here() -> None:
    here = Owner.current()
    assert can_be_seen(here)
    for other in (
        elsewhere("node7"),
        replace(here, host="other"),
        replace(here, boot_id="other"),
        replace(here, pid_namespace="other"),
        replace(here, start_ticks=None),
    ):
        assert not can_be_seen(other)
        assert LocalProcess.find(other) is None


def test_what_is_from_before_a_restart() -> None:
    here = Owner.current()
    assert is_from_before_a_restart(replace(here, boot_id="other"))
    assert not is_from_before_a_restart(here)
    assert not is_from_before_a_restart(replace(here, boot_id=None))
    assert not is_from_before_a_restart(replace(here, host="other", boot_id="other"))


@pytest.mark.processes
@pytest.mark.parametrize(("trap", "expected"), [("", signal.SIGINT), ("trap '' INT;", signal.SIGTERM)])
def test_a_process_that_ignores_an_interrupt_is_stopped_otherwise(trap: str, expected: signal.Signals) -> None:
    words = ["sh", "-c", f"{trap} echo ready; read answer"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        process = LocalProcess.find(owner_of(child.pid))
        assert process is not None
        with contextlib.closing(process):
            assert process.interruption is expected


@pytest.mark.processes
def test_the_company_of_a_process_is_what_it_started_in_its_own_group() -> None:
    """What it has put into a group of its own, it has to end itself."""
    script = """
import subprocess, sys
inner = "import subprocess, sys; print(subprocess.Popen(['sleep', '1000']).pid, flush=True); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE)
apart = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print(child.pid, apart.pid, flush=True)
sys.stdin.read()
"""
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        lines = [parent.stdout.readline().split() for _ in range(2)]
        (grandchild,), (child, apart) = sorted(lines, key=len)
        process = LocalProcess.find(owner_of(parent.pid))
        assert process is not None
        with contextlib.closing(process):
            assert sorted(process.company()) == sorted([int(child), int(grandchild)])
        os.kill(int(apart), signal.SIGKILL)
        os.killpg(parent.pid, signal.SIGKILL)
