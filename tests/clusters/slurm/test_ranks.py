"""Steps on several nodes of a real Slurm: their processes know who they are, find each other and end together."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.lab import Lab, Result
from support.meeting import meeting


def test_ranks_find_each_other_by_this_process_alone(lab: Lab, run_on_slurm: Callable[..., Result]) -> None:
    """Two steps at once on the same two nodes: their ranks meet at addresses of their own."""
    steps = (
        "step('one', device=GpuConfig('A100', count=1), replicas=2),"
        " step('two', device=GpuConfig('A100', count=1), replicas=2, env_vars={'WORLD_SIZE': 'of my own'}),"
        " step('alone', device=GpuConfig('A100', count=2))"
    )
    of_driver = {"RANK": "7", "WORLD_SIZE": "9", "MARIN_JOB_VARIABLES": "RANK,WORLD_SIZE"}
    result = run_on_slurm(experiment=lab.experiment(meeting(steps)), env=of_driver)
    assert result.code == 0, result.output

    def seen(step: str, rank: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((lab.folder_of(step) / f"seen-{rank}.json").read_text())
        return found

    for step, size in (("one", "2"), ("two", "of my own")):
        address = seen(step, 0)["process"]["coordinator_address"]
        host, port = address.split(":")
        assert 61000 <= int(port) <= 65535
        # By its name where the test cluster can give its nodes names of their own, else where Slurm finds them.
        assert host in ("gpu1", "127.0.0.1")
        for rank in (0, 1):
            found = seen(step, rank)
            wanted = {"rank": rank, "count": 2, "local_rank": 0, "local_count": 1, "task": 0, "tasks": 1}
            assert found["process"] == found["fork"] == {**wanted, "coordinator_address": address}
            assert found["met"] == [0, 1]
            told = {
                "RANK": str(rank),
                "WORLD_SIZE": size,
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": host,
                "MASTER_PORT": port,
                "JAX_COORDINATOR_ADDRESS": address,
                "JAX_NUM_PROCESSES": "2",
                "JAX_PROCESS_ID": str(rank),
                "JAX_LOCAL_DEVICE_IDS": "0",
                "SLURMD_NODENAME": f"gpu{rank + 1}",
            }
            assert {name: found["variables"].get(name) for name in told} == told
    addresses = {seen(step, 0)["process"]["coordinator_address"] for step in ("one", "two")}
    assert len(addresses) == 2
    alone = seen("alone", 0)
    assert (alone["process"]["rank"], alone["process"]["count"], alone["met"]) == (0, 1, [0])
    assert "MASTER_ADDR" not in alone["variables"]
    assert alone["variables"]["RANK"] == "7"  # A step of one process is told nothing, and keeps what it has.


def test_a_rank_that_ends_long_before_another_does_not_end_it(lab: Lab, run_on_slurm: Callable[..., Result]) -> None:
    """Not even where a site says that its jobs are over a second after the first of their processes."""
    file = lab.experiment(
        """
        import time
        from marin_rules import *

        def work(config):
            time.sleep(4 * this_process().rank)

        resources = ResourceConfig(ram="300m", replicas=2)
        step = ExecutorStep("pair", remote(work, resources=resources, env_vars={"SLURM_WAIT": "1"}), {})
        if __name__ == "__main__":
            executor_main(steps=[step])
        """
    )
    result = run_on_slurm(experiment=file)
    assert lab.status_of("pair") == "SUCCESS", result.output


@pytest.mark.parametrize(
    ("end", "wanted"),
    [
        ("os._exit(3)", "rank 0, 1 of 2 ended without a word (srun: cpu2: task 1: Exited with exit code 3)"),
        ("os.kill(os.getpid(), 9)", "rank 0, 1 of 2 ended without a word (srun: cpu2: task 1: Killed)"),
        ("raise ValueError('no data')", "rank 1 of 2: ValueError: no data"),
    ],
)
def test_a_rank_that_fails_ends_one_that_hangs(
    lab: Lab, end: str, wanted: str, run_on_slurm: Callable[..., Result], tmp_path: Path
) -> None:
    file = lab.experiment(
        f"""
        import os, signal, time
        from marin_rules import *

        def fail(config):
            if this_process().rank == 1:
                while not os.path.exists("pid"):
                    time.sleep(0.02)
                {end}
            with open("pid.new", "w") as file:
                file.write(str(os.getpid()))
            os.rename("pid.new", "pid")
            while True:
                signal.pause()

        step = ExecutorStep("pair", remote(fail, resources=ResourceConfig(ram="300m", replicas=2)), {{}})
        if __name__ == "__main__":
            executor_main(steps=[step])
        """
    )
    result = run_on_slurm("--retries", "0", experiment=file)
    assert result.code != 0, result.output
    assert lab.info_of("pair")["run"]["error"] == wanted
    hanging = int((tmp_path / "pid").read_text())
    lab.wait_until(lambda: not lab.is_running(hanging), "the end of the rank that hangs")
