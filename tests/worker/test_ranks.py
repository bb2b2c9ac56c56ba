"""Steps of several processes, as processes of this machine: who they are, and how they end together."""

import json
import socket
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marin_rules.errors import MarinRulesError
from marin_rules.plans.run import new_run
from marin_rules.process import ThisProcess
from marin_rules.worker.library_variables import library_variables
from marin_rules.worker.ranks import check_report, coordinator_problem
from support.lab import Lab
from support.meeting import meeting

HERE = {"MARIN_LOCAL_RANKS": "1"}


@pytest.fixture
def seen(lab: Lab) -> Callable[[str], list[dict[str, Any]]]:
    """`seen("step")` is what each of its processes saw, in the order of their ranks."""

    def read(step: str) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(lab.folder_of(step).glob("seen-*.json"))]

    return read


def test_replicas_as_processes_of_one_machine_find_each_other(
    lab: Lab, seen: Callable[[str], list[dict[str, Any]]]
) -> None:
    file = lab.experiment(
        meeting("step('trio', replicas=3, env_vars={'MASTER_PORT': '29500', 'MARIN_PROCESS_RANK': '8'})")
    )
    result = lab.snakemake(experiment=file, env={**HERE, "RANK": "7", "MASTER_ADDR": "of the driver"})
    assert result.code == 0, result.output
    trio = seen("trio")
    address = trio[0]["process"]["coordinator_address"]
    host, port = address.split(":")
    assert host == "127.0.0.1"
    assert 61000 <= int(port) <= 65535
    for rank, process in enumerate(trio):
        wanted = {"rank": rank, "count": 3, "local_rank": rank, "local_count": 3, "task": 0, "tasks": 1}
        assert process["process"] == process["fork"] == {**wanted, "coordinator_address": address}
        assert process["met"] == [0, 1, 2]
        told = {
            "RANK": str(rank),
            "WORLD_SIZE": "3",
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": "3",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
            "JAX_COORDINATOR_ADDRESS": address,
            "JAX_NUM_PROCESSES": "3",
            "JAX_PROCESS_ID": str(rank),
        }
        assert {name: process["variables"].get(name) for name in told} == told
    assert (lab.folder_of("trio") / ".artifact.json").read_text() == "0\n"


def test_on_one_machine_a_step_is_one_process_whatever_it_asks_for_and_whatever_it_is_part_of(
    lab: Lab, seen: Callable[[str], list[dict[str, Any]]]
) -> None:
    """Started from inside a rank of another step: that one's number is not its own."""
    outer = ThisProcess(rank=1, count=2, coordinator_address="gpu1:61234")
    theirs = {**outer.to_variables(), **library_variables(outer, 0)}
    result = lab.snakemake(
        experiment=lab.experiment(meeting("step('one', replicas=2)")), env={**theirs, "LOCAL_RANK": "mine"}
    )
    assert result.code == 0, result.output
    (one,) = seen("one")
    assert one["process"] == one["fork"]
    assert ThisProcess(**one["process"]) == ThisProcess()
    assert one["variables"].items() >= ThisProcess().to_variables().items()
    assert one["variables"].keys() & theirs.keys() == ThisProcess().to_variables().keys() | {"LOCAL_RANK"}
    assert one["variables"]["LOCAL_RANK"] == "mine"


@pytest.mark.parametrize(
    ("end", "wanted"),
    [
        ("raise ValueError('no data')", "rank 1 of 2: ValueError: no data"),
        ("os._exit(3)", "rank 0, 1 of 2 ended without a word (rank 1 ended with exit code 3)"),
        ("os.kill(os.getpid(), 9)", "rank 0, 1 of 2 ended without a word (rank 1 was ended by SIGKILL)"),
    ],
)
def test_a_rank_that_fails_ends_the_others(lab: Lab, end: str, wanted: str) -> None:
    """The other one hangs for ever, unless it is ended."""
    file = lab.experiment(
        f"""
        import os, signal
        from marin_rules import *

        def fail(config):
            if this_process().rank == 1:
                {end}
            while True:
                signal.pause()

        step = ExecutorStep("pair", remote(fail, resources=ResourceConfig(ram="300m", replicas=2)), {{}})
        if __name__ == "__main__":
            executor_main(steps=[step])
        """
    )
    run = lab.start_snakemake(experiment=file, env=HERE)
    assert run.wait().code != 0
    assert lab.status_of("pair") == "FAILED"
    assert lab.info_of("pair")["run"]["error"] == wanted
    lab.wait_until(lambda: not run.alive(), "the end of all that was started")


def test_a_rank_that_is_cut_short_at_its_end_has_not_succeeded(lab: Lab) -> None:
    file = lab.experiment(
        """
        import atexit, os
        from marin_rules import *

        KEPT = []

        def write(path):
            KEPT.append(open(os.path.join(path, f"data-{this_process().rank}"), "w"))
            KEPT[-1].write("whole")
            if this_process().rank == 1:
                atexit.register(os._exit, 0)

        step = ExecutorStep("pair", remote(write, resources=ResourceConfig(ram="300m", replicas=2)), THIS_OUTPUT_PATH)
        if __name__ == "__main__":
            executor_main(steps=[step])
        """
    )
    result = lab.snakemake(experiment=file, env=HERE)
    assert result.code == 1, result.output
    assert lab.info_of("pair")["run"]["error"] == "rank 1 of 2 ended without a word"
    assert (lab.folder_of("pair") / "data-0").read_text() == "whole"


def test_a_disk_that_takes_its_time_at_the_end_of_a_rank_fails_nothing(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent(
            """
            import os, time

            fsync = os.fsync

            def slow(descriptor):
                if os.readlink(f"/proc/self/fd/{descriptor}").endswith("data-1"):
                    time.sleep(1.5)
                fsync(descriptor)

            os.fsync = slow
            """
        )
    )
    file = lab.experiment(
        """
        import os
        from marin_rules import *

        def write(path):
            with open(os.path.join(path, f"data-{this_process().rank}"), "w") as file:
                file.write("whole")

        step = ExecutorStep("pair", remote(write, resources=ResourceConfig(ram="300m", replicas=2)), THIS_OUTPUT_PATH)
        if __name__ == "__main__":
            executor_main(steps=[step])
        """
    )
    result = lab.snakemake(experiment=file, env={**HERE, "PYTHONPATH": str(tmp_path), "MARIN_STEP_END_SECONDS": "1"})
    assert lab.status_of("pair") == "SUCCESS", result.output


def test_all_ranks_may_save_what_they_have_when_the_run_is_stopped(lab: Lab, tmp_path: Path) -> None:
    file = lab.experiment(
        """
        import os, signal, sys
        from marin_rules import *

        def save(config):
            def stop(number, frame):
                print("saved")
                sys.exit(1)

            signal.signal(signal.SIGTERM, stop)
            os.mkdir(f"begun-{this_process().rank}")
            while True:
                signal.pause()

        step = ExecutorStep("careful", remote(save, resources=ResourceConfig(ram="300m", replicas=2)), {})
        if __name__ == "__main__":
            executor_main(steps=[step])
        """
    )
    run = lab.start_snakemake(experiment=file, env=HERE)
    run.wait_for(lambda: len(list(tmp_path.glob("begun-*"))) == 2, "both ranks to begin")
    run.interrupt()
    assert run.wait().code != 0
    assert lab.status_of("careful") == "CANCELLED"
    for rank in (0, 1):
        assert (lab.folder_of("careful") / f".executor_log.rank-{rank}").read_text().startswith("saved\n")
    lab.wait_until(lambda: not run.alive(), "the end of all that was started")


def test_rank_0_tells_of_a_port_that_was_taken_after_it_was_chosen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        first = ThisProcess(rank=0, count=2, coordinator_address=f"gpu1:{port}")
        problem = coordinator_problem(first)
        assert problem is not None
        assert f"port {port} of gpu1" in problem
        assert coordinator_problem(ThisProcess(rank=1, count=2, coordinator_address=f"gpu1:{port}")) is None
    assert coordinator_problem(first) is None
    assert coordinator_problem(ThisProcess()) is None


@pytest.mark.parametrize(
    ("directory", "folder", "is_fine"),
    [
        ("gs://bucket/out/experiments/.runs/x", "gs://bucket/out/experiments/.runs/x/ranks/1b2c-3d", True),
        ("out/experiments/.runs/x", "out/experiments/.runs/x/ranks/1b2c-3d", True),
        ("gs://bucket/out/experiments/.runs/x", "gs://bucket/out/experiments/.runs/xy/ranks", False),
        ("gs://bucket/out/experiments/.runs/x", "/home/ann/.ssh", False),
        ("/shared/x", "/shared/x/../../home/ann", False),
    ],
)
def test_reports_of_ranks_go_below_the_folder_of_their_run(directory: str, folder: str, is_fine: bool) -> None:
    run = replace(new_run(prefix="out", caller_path="x.py"), directory=directory)
    if is_fine:
        check_report(run, folder)
        return
    with pytest.raises(MarinRulesError, match="not a place for the reports of ranks"):
        check_report(run, folder)
