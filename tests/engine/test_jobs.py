"""`marin-rules jobs`: what is active on this machine, its logs, and how it is ended."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import LeaseRecord
from support.lab import Lab

GATED = """
    from marin_rules import ExecutorStep, executor_main

    def wait(config):
        print("at the gate", flush=True)
        open("gate").read()
        print("through the gate", flush=True)

    def note(config):
        print("after the gate")

    slow = ExecutorStep(name="parts/slow", fn=wait, config=None)
    after = ExecutorStep(name="after", fn=note, config=[slow])

    if __name__ == "__main__":
        executor_main(steps=[after])
"""


@pytest.fixture
def start_jobs(lab: Lab, tmp_path: Path) -> Callable[..., Any]:
    """`start_jobs("list")` starts `marin-rules jobs list`, on a machine without Slurm, and does not wait."""
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    program = Path(sys.executable).with_name("marin-rules")

    def launch(*arguments: str | Path, **options: Any) -> Any:
        env = {"PATH": str(nothing), **options.pop("env", {})}
        return lab.start([program, "jobs", *arguments], env=env, **options)

    return launch


@pytest.fixture
def jobs(start_jobs: Callable[..., Any]) -> Callable[..., Any]:
    """`jobs("list")` runs `marin-rules jobs list` to its end."""
    return lambda *arguments, **options: start_jobs(*arguments, **options).wait()


@pytest.fixture
def listed(jobs: Callable[..., Any]) -> Callable[[], Any]:
    """What `marin-rules jobs list --json` says."""

    def read() -> Any:
        result = jobs("list", "--json")
        assert result.code == 0, result.output
        return json.loads(result.output)

    return read


@pytest.fixture
def gated_run(lab: Lab) -> Any:
    """A run whose first step has printed its first line and waits at the gate."""
    run = lab.start_snakemake("--retries", "1", experiment=lab.experiment(GATED))
    run.wait_for(lambda: "[parts/slow] at the gate" in run.output, "the step is at the gate")
    run.wait_for((lab.folder_of("parts/slow") / ".executor_info").exists, "the worker has written its info")
    return run


def leases(folder: Path) -> list[Path]:
    return list(folder.rglob(".executor_status.lock"))


def test_nothing_is_under_way(jobs: Callable[..., Any]) -> None:
    result = jobs("list")
    assert (result.code, result.output) == (0, "nothing is running or queued\n")


def lease_owner(lease: Path) -> Owner:
    owner = LeaseRecord.parse(lease.read_bytes(), str(lease)).owner
    assert owner is not None
    return owner


def move_to_another_machine(lease: Path) -> Owner:
    """Let the lease say that its holder is on `node7`."""
    record, owner = LeaseRecord.parse(lease.read_bytes(), str(lease)), replace(lease_owner(lease), host="node7")
    lease.write_bytes(replace(record, owner=owner).to_bytes())
    return owner


def test_a_running_step_is_listed_with_its_process_and_its_run(
    gated_run: Any, jobs: Callable[..., Any], listed: Callable[[], Any], lab: Lab, tmp_path: Path
) -> None:
    worker = lease_owner(lab.folder_of("parts/slow") / ".executor_status.lock")
    host = os.uname().nodename
    result = jobs("list")
    assert result.code == 0
    head, row, _, summary = result.output.splitlines()
    assert head.split() == ["step", "job", "state", "node", "elapsed", "attempt", "run"]
    run_id = summary.split()[0]
    assert re.fullmatch(rf"parts/slow +pid {worker.pid} +RUNNING +{host} +[\d.]+s +1 +{run_id}", row)
    assert summary == f"{run_id} (experiment.py, driver pid {gated_run.pid} on {host}): 0 steps done, 2 left"

    told = listed()
    (step,) = told["steps"]
    assert step.pop("seconds") > 0
    assert step == {
        "step": "parts/slow",
        "key": f"parts/{lab.folder_of('parts/slow').name}",
        "output_path": str(lab.folder_of("parts/slow")),
        "run": run_id,
        "slurm_job": None,
        "gcp_job": None,
        "pid": worker.pid,
        "state": "RUNNING",
        "reason": "",
        "node": host,
        "attempt": 1,
        "driver_gone": False,
        "elements": None,
    }
    (run,) = told["runs"]
    assert (run["id"], run["experiment"]) == (run_id, str(tmp_path / "experiment.py"))
    assert run["driver"] == {"pid": gated_run.pid, "host": host, "gone": False}

    lab.open_gate()
    assert gated_run.wait().code == 0
    assert jobs("list").output == "nothing is running or queued\n"


def test_a_log_is_followed_to_the_end_of_its_step_whatever_it_is_called(
    gated_run: Any, start_jobs: Callable[..., Any], lab: Lab, tmp_path: Path
) -> None:
    folder, elsewhere = lab.folder_of("parts/slow"), tmp_path / "tmp"
    names = ["parts/slow", f"parts/{folder.name}", os.path.relpath(folder, elsewhere)]
    followers = [start_jobs("logs", name, "-f", cwd=elsewhere) for name in names]
    for follower in followers:
        follower.wait_for(lambda told=follower: "at the gate\n" in told.output, "the follower has the first line")
    lab.open_gate()
    for follower in followers:
        result = follower.wait()
        assert result.code == 0
        *log, end = result.output.splitlines(keepends=True)
        assert end == "marin-rules: step parts/slow: SUCCESS\n"
        assert "".join(log) == (folder / ".executor_log").read_text()
        assert [line for line in log if not line.startswith("---")] == ["at the gate\n", "through the gate\n"]
    assert gated_run.wait().code == 0


def test_a_log_that_is_still_to_come_is_waited_for(
    gated_run: Any, jobs: Callable[..., Any], start_jobs: Callable[..., Any], lab: Lab
) -> None:
    at_once = jobs("logs", "after")
    assert at_once.code == 1
    assert re.fullmatch(r"marin-rules: step after has no log at \S+: it has not started yet\n", at_once.output)
    follower = start_jobs("logs", "after", "-f")
    follower.wait_for(lambda: follower.output == at_once.output, "it waits")
    lab.open_gate()
    result = follower.wait()
    assert result.code == 0
    assert "after the gate\n" in result.output
    assert result.output.endswith("marin-rules: step after: SUCCESS\n")
    assert gated_run.wait().code == 0


def test_the_log_of_a_finished_step_is_found_by_its_path(gated_run: Any, jobs: Callable[..., Any], lab: Lab) -> None:
    lab.open_gate()
    gated_run.wait()
    log = (lab.folder_of("after") / ".executor_log").read_text()
    assert jobs("logs", lab.folder_of("after")).output == log
    assert jobs("logs", "-f", lab.folder_of("after")).output == f"{log}marin-rules: step after: SUCCESS\n"
    (lab.folder_of("after") / ".executor_log.rank-1").write_text("the second machine\n")
    assert jobs("logs", "--rank", "1", lab.folder_of("after")).output == "the second machine\n"
    missing = jobs("logs", "--rank", "2", lab.folder_of("after"))
    assert missing.code == 1
    assert f"no log at {lab.folder_of('after')}/.executor_log.rank-2: SUCCESS" in missing.output


def test_a_log_larger_than_memory_is_shown_piece_by_piece_or_from_its_end(gated_run: Any, lab: Lab) -> None:
    lab.open_gate()
    gated_run.wait()
    log = lab.folder_of("after") / ".executor_log"
    size = 1 << 30
    os.truncate(log, size)  # A hole: it takes no room on the disk.
    with log.open("a") as file:
        file.writelines(f"line {number}\n" for number in range(5))
    program = Path(sys.executable).with_name("marin-rules")
    command = f"ulimit -v 800000; PATH=/nothing {program} jobs logs {lab.folder_of('after')}"
    whole = lab.start(["bash", "-o", "pipefail", "-c", f"{command} | wc -c"]).wait()
    assert (whole.code, whole.output) == (0, f"{size + 35}\n")
    end = lab.start(["bash", "-c", f"{command} --tail 2"]).wait()
    assert (end.code, end.output) == (0, "line 3\nline 4\n")
    followed = lab.start(["bash", "-c", f"{command} --tail 3 -f"]).wait()
    assert followed.output == "line 2\nline 3\nline 4\nmarin-rules: step after: SUCCESS\n"
    assert lab.start(["bash", "-c", f"{command} --tail 0"]).wait().code == 2


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_logs_and_stops_reach_a_step_in_a_bucket(
    scheme: str, request: pytest.FixtureRequest, lab: Lab, start_jobs: Callable[..., Any]
) -> None:
    store = request.getfixturevalue("gcs" if scheme == "gs" else "s3")
    store.create_bucket("bucket")
    env = store.environment | {"MARIN_LEASE_LIFETIME_SECONDS": "3"}  # The log is published at each heartbeat.
    run = lab.start_snakemake(experiment=lab.experiment(GATED), prefix=f"{scheme}://bucket/x", env=env)
    run.wait_for(lambda: "[parts/slow] at the gate" in run.output, "the step is at the gate")
    follower = start_jobs("logs", "-f", "parts/slow", env=env)
    follower.wait_for(lambda: "at the gate\n" in follower.output, "the follower has the first line")
    assert start_jobs("logs", "--tail", "1", "parts/slow", env=env).wait().output == "at the gate\n"
    result = start_jobs("stop", "parts/slow", env=env).wait()
    assert (result.code, result.output.splitlines()[-1]) == (0, "stopped parts/slow: CANCELLED"), result.output
    assert follower.wait().output.endswith("marin-rules: step parts/slow: CANCELLED\n")
    assert not [name for name in store.names("bucket") if name.endswith(".lock")]
    assert run.wait().code == 1


def test_ctrl_c_ends_the_follower_and_nothing_else(gated_run: Any, start_jobs: Callable[..., Any], lab: Lab) -> None:
    follower = start_jobs("logs", "-f", "parts/slow")
    follower.wait_for(lambda: "at the gate\n" in follower.output, "the follower has the first line")
    follower.interrupt()
    result = follower.wait()
    assert result.code == 130
    assert "Traceback" not in result.output
    lab.open_gate()
    assert gated_run.wait().code == 0


def test_a_stopped_step_is_cancelled_its_lease_is_free_and_its_driver_told(
    gated_run: Any, jobs: Callable[..., Any], lab: Lab, tmp_path: Path
) -> None:
    result = jobs("stop", "parts/slow")
    assert result.code == 0, result.output
    assert result.output.endswith("stopped parts/slow: CANCELLED\n")
    assert lab.status_of("parts/slow") == "CANCELLED"
    assert lab.info_of("parts/slow")["run"]["error"] == "stopped by SIGTERM"
    assert leases(tmp_path) == []
    told = gated_run.wait()
    assert told.code == 1
    assert re.search(r"^[\d:]+ stopped parts/slow after ", told.output, re.MULTILINE)
    assert told.output.count("the step was stopped in this run") == 1  # To the retry, which does nothing.
    assert lab.info_of("parts/slow")["run"]["attempt"] == 1
    assert jobs("list").output == "nothing is running or queued\n"

    again = lab.start_snakemake(experiment=tmp_path / "experiment.py")
    lab.open_gate()
    assert again.wait().code == 0


def test_a_step_that_does_not_run_is_not_stopped(gated_run: Any, jobs: Callable[..., Any], lab: Lab) -> None:
    result = jobs("stop", "after")
    assert (result.code, result.output) == (1, "marin-rules: step after does not run: it has not started yet\n")
    lab.open_gate()
    gated_run.wait()
    result = jobs("stop", lab.folder_of("after"))
    assert (result.code, result.output) == (1, "marin-rules: step after does not run: SUCCESS\n")
    assert lab.status_of("after") == "SUCCESS"


@pytest.mark.parametrize("door", ["snakemake", "python", "background"])
def test_a_stopped_run_ends_with_all_that_it_has_started(
    door: str, lab: Lab, listed: Callable[[], Any], jobs: Callable[..., Any], tmp_path: Path
) -> None:
    file = lab.experiment(GATED)
    if door == "snakemake":
        run = lab.start_snakemake(experiment=file)
    else:  # The driver is not the leader of its process group; in the background of a script it ignores SIGINT.
        shell = ["sh", "-c", f"trap '' {'INT' if door == 'background' else ''}; exec \"$@\"", "sh"]
        run = lab.start([*shell, sys.executable, file, "--prefix", lab.prefix])
    run.wait_for(lambda: "at the gate" in run.output, "the step is at the gate")
    (known,) = listed()["runs"]
    result = jobs("stop", known["id"][:-2])
    assert result.code == 0, result.output
    assert result.output.endswith(f"stopped parts/slow: CANCELLED\nstopped run {known['id']}\n")
    assert run.wait().code != 0
    lab.wait_until(lambda: not run.alive(), "the end of all processes")
    assert (lab.status_of("parts/slow"), lab.status_of("after")) == ("CANCELLED", None)
    assert leases(tmp_path) == []
    assert jobs("list").output == "nothing is running or queued\n"


@pytest.mark.parametrize("target", ["step", "run"])
def test_what_outlives_its_killed_driver_is_shown_and_can_be_stopped(
    target: str, gated_run: Any, jobs: Callable[..., Any], listed: Callable[[], Any], lab: Lab, tmp_path: Path
) -> None:
    os.kill(gated_run.pid, signal.SIGKILL)
    gated_run.wait()
    told = jobs("list").output
    assert "RUNNING (driver gone)" in told
    assert f"driver pid {gated_run.pid} on {os.uname().nodename}, gone)" in told
    (run,) = listed()["runs"]
    result = jobs("stop", "parts/slow" if target == "step" else run["id"])
    assert result.code == 0, result.output
    assert lab.status_of("parts/slow") == "CANCELLED"
    assert leases(tmp_path) == []
    assert jobs("list").output == "nothing is running or queued\n"
    assert list((tmp_path / "state" / "marin-rules" / "runs").iterdir()) == []
    lab.wait_until(lambda: not gated_run.alive(), "the end of all processes")


def test_a_run_of_which_nothing_is_left_is_forgotten(
    gated_run: Any, jobs: Callable[..., Any], lab: Lab, tmp_path: Path
) -> None:
    gated_run.kill_everything()
    runs = tmp_path / "state" / "marin-rules" / "runs"
    assert len(list(runs.iterdir())) == 1
    assert len(leases(tmp_path)) == 1
    assert jobs("list").output == "nothing is running or queued\n"
    assert list(runs.iterdir()) == []
    assert lab.status_of("parts/slow") == "RUNNING"  # To list is only to read.


def test_a_run_from_before_a_restart_is_forgotten_when_it_is_stopped(
    gated_run: Any, jobs: Callable[..., Any], tmp_path: Path
) -> None:
    gated_run.kill_everything()
    (file,) = (tmp_path / "state" / "marin-rules" / "runs").iterdir()
    known = json.loads(file.read_text())
    known["driver"]["boot_id"] = "another"
    file.write_text(json.dumps(known))
    assert f"driver pid {gated_run.pid} on {os.uname().nodename}, from before a restart)" in jobs("list").output
    result = jobs("stop", known["id"])
    assert (result.code, result.output) == (0, f"stopped run {known['id']}\n")
    assert jobs("list").output == "nothing is running or queued\n"

    file.write_text(json.dumps(known))
    minutes_ago = time.time() - 240
    os.utime(file, (minutes_ago, minutes_ago))
    assert jobs("list").output == "nothing is running or queued\n"
    assert not file.exists()

    known["driver"]["host"] = "login7"
    file.write_text(json.dumps(known))
    result = jobs("stop", known["id"])
    assert result.code == 1
    assert f"driven by process {gated_run.pid} on login7" in result.output
    assert file.exists()


def test_a_run_that_died_on_another_machine_is_forgotten_after_a_long_silence(
    gated_run: Any, jobs: Callable[..., Any], lab: Lab, tmp_path: Path
) -> None:
    """Neither its driver nor the worker of its step can be seen from here; both fell silent long ago."""
    (file,) = (tmp_path / "state" / "marin-rules" / "runs").iterdir()
    gated_run.kill_everything()
    known = json.loads(file.read_text())
    known["driver"]["host"] = "login7"
    file.write_text(json.dumps(known))
    lease = lab.folder_of("parts/slow") / ".executor_status.lock"
    move_to_another_machine(lease)
    told = jobs("list").output
    assert "on login7): 0 steps done, 2 left" in told
    assert re.search(r"^parts/slow .* node7 ", told, re.MULTILINE)

    long_ago = time.time() - 1000
    os.utime(file, (long_ago, long_ago))
    assert "login7" in jobs("list").output, "its step still gives signs of life"
    record = LeaseRecord.parse(lease.read_bytes(), str(lease))
    lease.write_bytes(replace(record, timestamp=long_ago).to_bytes())
    assert jobs("list").output == "nothing is running or queued\n"
    assert not file.exists()


def test_what_a_killed_worker_left_is_cleared_by_a_stop(
    gated_run: Any, jobs: Callable[..., Any], lab: Lab, tmp_path: Path
) -> None:
    gated_run.kill_everything()
    result = jobs("stop", lab.folder_of("parts/slow"))
    assert (result.code, result.output) == (0, "stopped parts/slow: CANCELLED\n")
    assert lab.status_of("parts/slow") == "CANCELLED"
    assert leases(tmp_path) == []


def test_a_step_on_another_machine_is_left_alone_and_its_host_is_told(
    gated_run: Any, jobs: Callable[..., Any], lab: Lab
) -> None:
    lease = lab.folder_of("parts/slow") / ".executor_status.lock"
    pid = move_to_another_machine(lease).pid
    result = jobs("stop", "parts/slow")
    assert result.code == 1
    assert f"runs on node7 (pid {pid}, " in result.output
    assert f"`marin-rules jobs stop parts/{lab.folder_of('parts/slow').name}` there" in result.output
    assert lab.status_of("parts/slow") == "RUNNING"


def test_a_name_that_several_steps_have_lists_them(
    gated_run: Any, lab: Lab, jobs: Callable[..., Any], tmp_path: Path
) -> None:
    second = lab.start_snakemake(experiment=tmp_path / "experiment.py", prefix=tmp_path / "second")
    second.wait_for(lambda: "at the gate" in second.output, "the step is at the gate")
    paths = [lab.folder_of("parts/slow"), tmp_path / "second" / "parts" / lab.folder_of("parts/slow").name]
    for command in ("logs", "stop"):
        result = jobs(command, "parts/slow")
        assert result.code == 1
        assert result.output.splitlines()[1:] == [f"  {path}" for path in paths]
    assert jobs("stop", "experiment-").code == 1
    assert jobs("stop", paths[1]).code == 0
    assert second.wait().code == 1
    assert gated_run.process.poll() is None


def test_a_name_that_nobody_has(jobs: Callable[..., Any]) -> None:
    for command in ("logs", "stop"):
        result = jobs(command, "nobody")
        assert result.code == 1
        assert result.output.startswith("marin-rules: no step 'nobody' in your active runs")
        assert len(result.output.splitlines()) == 1
    for arguments in ([], ["end"], ["logs"], ["stop"]):
        assert jobs(*arguments).code == 2


def test_a_slurm_that_does_not_answer_hides_nothing_else(
    gated_run: Any, jobs: Callable[..., Any], tmp_path: Path
) -> None:
    program = tmp_path / "silent" / "squeue"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2\nexit 1\n")
    program.chmod(0o755)
    result = jobs("list", env={"PATH": str(program.parent)})
    assert result.code == 0
    trouble, _, row, *_ = result.output.splitlines()
    assert trouble.startswith("marin-rules: cannot list the jobs of slurm: squeue failed: slurm_load_jobs error")
    assert row.startswith("parts/slow ")
    gated_run.kill_everything()
    assert "driver pid" in jobs("list", env={"PATH": str(program.parent)}).output  # It may still have jobs.
