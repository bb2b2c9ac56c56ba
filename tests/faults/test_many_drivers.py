"""Several drivers on one DAG in one bucket, while workers are killed at random: each step is committed once.

Drivers are real Snakemake processes with a working directory each. One that fails, because a worker of its own was
killed, is started again, as its user would. In the end every step's bytes are those that the test computes.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.faults.dags import EXPERIMENT, Dag
from support.faults.places import Objects
from support.lab import Lab

SERVER = "marin_rules.worker.warm.server"
LIFETIME = "6"
ROUNDS = 20


def is_server(pid: int) -> bool:
    try:
        return SERVER.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def workers(run: Any) -> list[int]:
    """The workers of a driver: forked by its server, and ancestors of their steps."""
    servers = [pid for pid in run.alive() if is_server(pid) and not is_server(parent(pid))]
    return [pid for pid in run.alive() if parent(pid) in servers]


class Drivers:
    """Drivers that are started again until each of them has succeeded."""

    def __init__(self, start: Callable[[int], Any], count: int) -> None:
        self._start = start
        self._runs = {number: start(number) for number in range(count)}
        self.starts = count
        self.kills = 0

    def unfinished(self) -> list[Any]:
        """What still runs; a driver that has failed is started again."""
        for number, run in list(self._runs.items()):
            code = run.process.poll()
            if code is None:
                continue
            del self._runs[number]
            if code != 0:
                assert "failed" in run.output or "error" in run.output, run.output
                self._runs[number] = self._start(number)
                self.starts += 1
        return list(self._runs.values())

    def kill_a_worker(self, chance: random.Random) -> None:
        victims = workers(chance.choice(list(self._runs.values())))
        if victims:
            os.kill(chance.choice(victims), signal.SIGKILL)
            self.kills += 1


def play(drivers: Drivers, chance: random.Random, *, kills: int, every: float, timeout: float) -> None:
    """Kill workers until enough have been, then let all drivers finish."""
    give_up = time.monotonic() + timeout
    next_kill = time.monotonic()
    while runs := drivers.unfinished():
        if time.monotonic() > give_up:
            pytest.fail("still running:\n" + "\n".join(run.output for run in runs))
        if drivers.kills < kills and time.monotonic() > next_kill:
            drivers.kill_a_worker(chance)
            next_kill = time.monotonic() + chance.uniform(0, 2 * every)
        time.sleep(0.05)


@pytest.fixture
def start_driver(tmp_path: Path, lab: Lab) -> Callable[..., Any]:
    def start(number: int, dag: Dag) -> Any:
        folder = tmp_path / f"driver-{number}"
        folder.mkdir(exist_ok=True)
        environment = {**dag.environment, "MARIN_LEASE_LIFETIME_SECONDS": LIFETIME}
        return lab.start_snakemake(
            "-j", "2", experiment=EXPERIMENT, prefix=dag.place.prefix, cwd=folder, env=environment
        )

    return start


def test_two_drivers(tmp_path: Path, make_place: Callable[[str], Objects], start_driver: Callable[..., Any]) -> None:
    dag = Dag(tmp_path, make_place("gcs"), count=6, seed=3)
    drivers = Drivers(lambda number: start_driver(number, dag), count=2)
    play(drivers, random.Random(3), kills=2, every=0.3, timeout=120)
    assert drivers.kills >= 1
    dag.assert_finished()
    # A worker that is killed between SUCCESS and the end of its lease leaves that behind, and nobody needs it any more.
    assert len(dag.leases()) <= drivers.kills


@pytest.mark.faults
@pytest.mark.parametrize("number", range(ROUNDS))
def test_six_drivers(
    number: int,
    tmp_path: Path,
    make_place: Callable[[str], Objects],
    start_driver: Callable[..., Any],
    tell: Callable[[str], None],
) -> None:
    began = time.monotonic()
    dag = Dag(tmp_path, make_place("gcs"), count=200, seed=number)
    drivers = Drivers(lambda driver: start_driver(driver, dag), count=6)
    play(drivers, random.Random(number), kills=12, every=4.0, timeout=1800)
    dag.assert_finished()
    assert len(dag.leases()) <= drivers.kills
    assert drivers.kills >= 5
    seconds = time.monotonic() - began
    tell(f"round {number}: {drivers.kills} workers killed, drivers started {drivers.starts} times, {seconds:.0f} s")
