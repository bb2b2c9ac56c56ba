"""Array steps in whole runs: what people see, stop and start again, from `python x.py` and from Snakemake."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from support.array_experiment import ArrayLab
from support.emulators.gcs.emulator import GcsEmulator
from support.lab import Lab, Result, Running

DOORS = ["python", "snakemake"]


def start(array: ArrayLab, door: str, *words: str, **options: Any) -> Running:
    """A run of the experiment; `words` for the door."""
    if door == "snakemake":
        return array.lab.start_snakemake(*words, experiment=array.file, **options)
    return array.lab.start([sys.executable, array.file, "--prefix", array.lab.prefix, *words], **options)


def run(array: ArrayLab, door: str, *words: str, **options: Any) -> Result:
    return start(array, door, *words, **options).wait()


def dry_run(array: ArrayLab, door: str) -> Result:
    return run(array, door, *(["-n"] if door == "snakemake" else ["--dry_run", "True"]))


@pytest.mark.parametrize("door", DOORS)
def test_a_step_fails_goes_on_and_is_done(door: str, array: ArrayLab, lab: Lab) -> None:
    array.order(fail=[2])
    result = run(array, door)
    assert result.code == 1, result.output
    assert "\n      1 of 6 tasks failed: task 2: ValueError: no 2\n" in result.output
    assert result.started == ["many"], "what depends on it does not run"
    assert array.noted("end") == [0, 1, 3, 4, 5]

    told = dry_run(array, door).output
    assert re.search(r"would run +many +\S+\s+\(failed before at \S+; 5 of 6 tasks are done\)\n", told), told

    array.order()
    result = run(array, door)
    assert result.code == 0, result.output
    array.assert_never_twice()
    array.assert_finished(6)
    (path,) = lab.prefix.glob("last-*/.artifact.json")
    assert [item["task"] for item in json.loads(path.read_text())] == list(range(6))
    assert lab.info_of("many")["run"]["tasks"] == 6
    assert dry_run(array, door).cached == ["last", "many"]


@pytest.mark.parametrize("door", DOORS)
def test_ctrl_c(door: str, array: ArrayLab, lab: Lab) -> None:
    array.order(wait=[1, 2])
    driver = start(array, door)
    driver.wait_for(lambda: array.noted("begin")[:3] == [0, 1, 2], "two tasks wait")
    driver.interrupt()
    result = driver.wait()
    assert result.code == (1 if door == "snakemake" else 130), result.output
    assert "0 done, 1 stopped, 1 not run" in result.output
    lab.wait_until(lambda: not driver.alive(), "the end of all processes")
    assert lab.status_of("many") == "CANCELLED"
    assert array.words() == {0: "SUCCESS", 1: "CANCELLED", 2: "CANCELLED"}
    assert array.noted("told") == [1, 2]
    assert array.leases() == []
    assert "; 1 of 6 tasks are done)" in dry_run(array, door).output


def test_sigkill_to_the_group_of_the_driver(array: ArrayLab, lab: Lab) -> None:
    array.order(wait=[1, 2])
    driver = start(array, "snakemake")
    driver.wait_for(lambda: array.noted("begin")[:3] == [0, 1, 2], "two tasks wait")
    os.killpg(driver.pid, signal.SIGKILL)
    lab.wait_until(lambda: not driver.alive(), "the end of all processes")
    assert array.words() == {0: "SUCCESS", 1: "CANCELLED", 2: "CANCELLED"}
    assert array.leases() == []
    array.order()
    result = array.start_worker().wait()
    assert result.code == 0, result.output
    array.assert_never_twice()
    array.assert_finished(6)


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("tasks", "words"), [(16, "has tasks=16 in this run"), (None, "is not divided into tasks in this run")]
)
def test_another_number_of_tasks_is_refused_and_nothing_changes(
    tasks: int | None, words: str, array: ArrayLab, lab: Lab
) -> None:
    array.divide(12)
    array.order(fail=[11])
    assert array.start_worker().wait().code == 1
    before = files_of(array.folder)
    array.forget()
    array.divide(tasks)
    told = f"step many was begun with tasks=12, of which 11 are done, and {words}: their results would be mixed."
    for result in (
        dry_run(array, "python"),
        array.start_worker().wait(),
        *([] if tasks is None else [run(array, "snakemake")]),
    ):
        assert result.code == 1, result.output
        assert told in " ".join(result.output.split()), result.output
        assert "Traceback" not in result.output
    assert files_of(array.folder) == before
    assert array.ran == []

    array.divide(12)
    array.order()
    result = array.start_worker().wait()
    assert result.code == 0, result.output
    assert array.noted("begin") == [11]
    array.assert_finished(12)


@pytest.mark.parametrize(
    ("is_done", "tasks", "words", "config"),
    [(True, 6, [], {"force": "many"}), (False, 6, ["-R", "work"], {}), (False, 4, [], {"force": "many"})],
    ids=["done", "half done", "half done with another number"],
)
def test_a_forced_step_does_all_of_its_tasks_again(
    is_done: bool, tasks: int, words: list[str], config: dict[str, str], array: ArrayLab
) -> None:
    array.order(fail=[] if is_done else [3])
    assert array.start_worker().wait().code == (0 if is_done else 1)
    array.order()
    array.divide(tasks)
    array.forget()
    for file in array.folder.glob("*.data"):
        file.unlink()
    result = run(array, "snakemake", *words, config=config)
    assert result.code == 0, result.output
    assert array.noted("begin") == list(range(tasks))
    array.assert_finished(tasks, number=2)
    assert not (array.folder / ".executor_tasks/round-1").exists()


def test_each_task_has_a_gpu_of_its_own_and_its_secrets(array: ArrayLab, lab: Lab) -> None:
    gpus = [f"GPU-{secrets.token_hex(8)}" for _ in range(2)]
    secret = secrets.token_hex(20)
    array.divide(6, machines={"gpu_type": "A100", "count": 1, "ram": "1m"}, env_vars={"KEY": secret})
    array.order(wait="all")
    driver = start(array, "snakemake", "--cores", "4", env={"CUDA_VISIBLE_DEVICES": ",".join(gpus)})
    driver.wait_for(lambda: len(array.noted("begin")) == 2, "two tasks run")
    worker = array.pids(array.noted("begin")[0])[1]
    pool = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    workers = Path(f"/proc/{pool}/task/{pool}/children").read_text().split()
    assert len(workers) == 2, "there is no third GPU, though there are cores"
    array.go()
    result = driver.wait()
    assert result.code == 0, result.output
    artifacts = json.loads((array.folder / ".artifact.json").read_text())
    assert {item["gpus"] for item in artifacts} == set(gpus), "one each"
    assert {item["secret"] for item in artifacts} == {len(secret)}
    array.assert_finished(6)
    told = [path for path in lab.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert [path.name for path in told] == ["step.json"], "only where this test wrote it"


def test_a_prefix_in_a_bucket(array: ArrayLab, lab: Lab, gcs: GcsEmulator) -> None:
    gcs.create_bucket("bucket")
    options = {"env": gcs.environment, "prefix": "gs://bucket/out"}
    array.order(fail=[2])
    result = run(array, "snakemake", **options)
    assert result.code == 1, result.output
    assert "1 of 6 tasks failed: task 2: ValueError: no 2" in result.output
    array.order()
    result = run(array, "snakemake", **options)
    assert result.code == 0, result.output
    array.assert_never_twice()
    assert array.noted("begin") == [0, 1, 2, 2, 3, 4, 5]
    names = gcs.names("bucket")
    (status,) = (name for name in names if re.fullmatch(r"out/many-\w{6}/\.executor_status", name))
    folder = status.rpartition("/")[0]
    assert gcs.get("bucket", status) == b"SUCCESS"
    assert [name for name in names if name.endswith(".lock")] == []
    for task in range(6):
        history = [
            json.loads(data) for data in gcs.history("bucket", f"{folder}/.executor_tasks/round-1/{task}.json") if data
        ]
        expected = ["RUNNING", "FAILED", "RUNNING", "SUCCESS"] if task == 2 else ["RUNNING", "SUCCESS"]
        assert [record["status"] for record in history] == expected
        assert f"this is {task}\n".encode() in (
            gcs.get("bucket", f"{folder}/.executor_tasks/round-1/{task}.log") or b""
        )


def test_a_full_disk_leaves_nothing_done_and_room_lets_it_go_on(array: ArrayLab, lab: Lab, tmp_path: Path) -> None:
    """The record of a task finds no place. What is done is kept, what is not runs again."""
    lab.prefix.mkdir()
    command = shlex.join([sys.executable, "work.py", "1"])
    array.divide(3)
    # The second task fills the disk and leaves it so; its worker tries for some lifetimes of its lease to say so.
    array.file.write_text(
        array.file.read_text().replace(
            'note("end", task)',
            'note("end", task)\n    if task == 1 and os.path.exists("greedy"):\n        fill(config["path"])',
        )
        + FILL
    )
    (tmp_path / "greedy").touch()
    script = f"""
        set -eu
        mount -t tmpfs -o size=256k none {shlex.quote(str(lab.prefix))}
        {command} > first.log 2>&1 || echo "first: exit code $?"
        cp {lab.prefix}/many-*/.executor_status status-1
        cp {lab.prefix}/many-*/.executor_tasks/round-1/*.json .
        rm {lab.prefix}/many-*/large* greedy
        {command} > second.log 2>&1 || echo "second: exit code $?"
        cp {lab.prefix}/many-*/.executor_status status-2
    """
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    short = {"MARIN_LEASE_LIFETIME_SECONDS": "1"}
    result = lab.start(["unshare", "--mount", *as_root, "bash", "-c", script], env=short).wait()
    first = (tmp_path / "first.log").read_text()
    assert result.code == 0, f"{result.output}\n{first}"
    assert re.search(r"^first: exit code [1-9]", result.output), first
    assert "Traceback" not in first
    assert "no space left on the device" in first
    assert (tmp_path / "status-1").read_text() != "SUCCESS"
    records = {path.stem: json.loads(path.read_text())["status"] for path in tmp_path.glob("?.json")}
    assert records["0"] == "SUCCESS"
    assert records["1"] != "SUCCESS"
    assert "second: exit code" not in result.output, (tmp_path / "second.log").read_text()
    assert (tmp_path / "status-2").read_text() == "SUCCESS"
    assert array.noted("begin").count(0) == 1


FILL = """

def fill(folder):
    for size in (4096, 1):
        try:
            with open(os.path.join(folder, f"large{size}"), "wb", buffering=0) as file:
                while True:
                    file.write(b"x" * size)
        except OSError:
            pass
"""
