"""Array steps on a real Slurm: a job array whose elements are tasks, each run once whatever happens to it."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from support.lab import REPOSITORY, Lab, Result, Running
from support.slurm.cluster import SlurmCluster

ARRAY = """
    import os, time
    from dataclasses import dataclass
    from marin_rules import *

    @dataclass(frozen=True)
    class Config:
        folder: str
        number: int = versioned(1)
        output_path: str = THIS_OUTPUT_PATH

    def note(config, word):
        with open(os.path.join(config.folder, "notes"), "a") as file:
            file.write(word + "\\n")

    def work(config):
        me = this_process()
        note(config, f"begin {me.task} {os.environ['SLURM_JOB_ID']}")
        gate = os.path.join(config.folder, f"hold-{me.task}")
        while os.path.exists(gate):
            time.sleep(0.02)
        if os.path.exists(os.path.join(config.folder, f"fail-{me.task}")):
            raise ValueError(f"no luck with {me.task}")
        with open(os.path.join(config.output_path, f"part-{me.task}"), "w") as file:
            file.write(" ".join(shards_of_this_task([f"shard-{number:02}" for number in range(20)])))
        note(config, f"end {me.task}")
        return me.task * 10

    parts = ExecutorStep(
        "parts", remote(work, tasks=TASKS, resources=ResourceConfig.with_cpu(cpu=1, ram="200m")), Config(os.getcwd())
    )

    if __name__ == "__main__":
        executor_main(steps=[parts])
    """


@pytest.fixture
def array(lab: Lab) -> Callable[[int], Path]:
    """`array(8)` writes an experiment with one step of so many tasks."""
    return lambda tasks: lab.experiment(ARRAY.replace("TASKS", str(tasks)))


@pytest.fixture
def notes(tmp_path: Path) -> Callable[[], list[str]]:
    """What the tasks have noted so far."""
    path = tmp_path / "notes"
    return lambda: path.read_text().splitlines() if path.exists() else []


def begun(notes: list[str]) -> Counter[int]:
    return Counter(int(line.split()[1]) for line in notes if line.startswith("begin"))


def ended(notes: list[str]) -> Counter[int]:
    return Counter(int(line.split()[1]) for line in notes if line.startswith("end"))


def whole(folder: Path, tasks: int) -> bool:
    """Whether the output is that of all tasks: every shard in one part, and the list of what they returned."""
    parts = [(folder / f"part-{task}").read_text().split() for task in range(tasks)]
    return (
        sorted(shard for part in parts for shard in part) == [f"shard-{number:02}" for number in range(20)]
        and json.loads((folder / ".artifact.json").read_text()) == [task * 10 for task in range(tasks)]
        and (folder / ".executor_status").read_text() == "SUCCESS"
    )


def records(folder: Path) -> dict[int, dict[str, object]]:
    rounds = sorted((folder / ".executor_tasks").glob("round-*"))
    return {int(path.stem): json.loads(path.read_text()) for path in rounds[-1].glob("*.json")}


def array_of(slurm: SlurmCluster) -> list[str]:
    """The `--array` option of each sbatch, in order."""
    words = [word for call in slurm.calls("sbatch") for word in call if word.startswith("--array=")]
    return [word.removeprefix("--array=") for word in words]


def array_number(slurm: SlurmCluster) -> str:
    """The number of the one array that is in the queue."""
    (number,) = set(slurm.run("squeue", "--noheader", "--format=%F").split())
    return number


def test_the_tasks_of_a_step_are_the_elements_of_one_array(
    array: Callable[[int], Path],
    run_on_slurm: Callable[..., Result],
    slurm: SlurmCluster,
    notes: Callable[[], list[str]],
    lab: Lab,
) -> None:
    result = run_on_slurm(experiment=array(6))
    assert result.code == 0, result.output
    assert array_of(slurm) == ["0-5"]
    assert whole(lab.folder_of("parts"), 6)
    assert begun(notes()) == ended(notes()) == Counter(range(6))
    assert "tasks  parts: 6/6" in result.output
    jobs = {record["slurm"]["job_id"] for record in records(lab.folder_of("parts")).values()}  # type: ignore[index]
    assert len(jobs) == 6
    assert {job.split("_")[1] for job in jobs} == set("012345")
    assert "1 step: 1 cached" in run_on_slurm(experiment=array(6)).output
    assert len(slurm.calls("sbatch")) == 1


def test_only_tasks_that_failed_run_again(
    array: Callable[[int], Path],
    run_on_slurm: Callable[..., Result],
    slurm: SlurmCluster,
    notes: Callable[[], list[str]],
    lab: Lab,
    tmp_path: Path,
) -> None:
    for task in (1, 4):
        (tmp_path / f"fail-{task}").touch()
    result = run_on_slurm("--retries", "0", experiment=array(6))
    assert result.code != 0
    assert "2 of 6 tasks failed: task 1: ValueError: no luck with 1; also task 4" in result.output
    assert ended(notes()) == Counter([0, 2, 3, 5])
    assert (lab.folder_of("parts") / ".executor_status").read_text() == "FAILED"
    for task in (1, 4):
        (tmp_path / f"fail-{task}").unlink()
    dry = run_on_slurm("-n", experiment=array(6))
    assert "4 of 6 tasks are done" in dry.output
    assert "-> slurm: 6 tasks, each partition cpu, 1 CPU, 200M" in dry.output
    result = run_on_slurm(experiment=array(6))
    assert result.code == 0, result.output
    assert array_of(slurm) == ["0-5", "0,3"]
    assert begun(notes()) == Counter([0, 1, 1, 2, 3, 4, 4, 5])
    assert whole(lab.folder_of("parts"), 6)


def test_elements_that_lose_their_machines_are_done_again_and_no_others(
    array: Callable[[int], Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    notes: Callable[[], list[str]],
    lab: Lab,
    tmp_path: Path,
) -> None:
    """One is queued again by Slurm, one runs out of time; the controller restarts."""
    for task in range(4):
        (tmp_path / f"hold-{task}").touch()
    running = start_on_slurm(experiment=array(4))
    running.wait_for(lambda: len(begun(notes())) == 4, "all tasks run")
    number = array_number(slurm)
    slurm.run("scontrol", "requeue", f"{number}_0")
    slurm.restart_controller()
    slurm.run_out_of_time(f"{number}_2")
    for task in range(4):
        (tmp_path / f"hold-{task}").unlink()
    result = running.wait(120)
    assert result.code == 0, result.output
    assert whole(lab.folder_of("parts"), 4)
    assert ended(notes())[1] == ended(notes())[3] == begun(notes())[1] == begun(notes())[3] == 1
    assert begun(notes())[0] == 2


def test_a_person_cancels_one_element_and_the_others_go_on(
    array: Callable[[int], Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    notes: Callable[[], list[str]],
    lab: Lab,
    tmp_path: Path,
) -> None:
    for task in range(3):
        (tmp_path / f"hold-{task}").touch()
    running = start_on_slurm(experiment=array(3))
    running.wait_for(lambda: len(begun(notes())) == 3, "all tasks run")
    number = array_number(slurm)
    slurm.run("scancel", f"{number}_1")
    running.wait_for(lambda: "failed task 1" in running.output, "the cancelled task is seen")
    for task in range(3):
        (tmp_path / f"hold-{task}").unlink()
    result = running.wait(120)
    assert result.code != 0
    assert f"1 of 3 tasks failed: task 1: slurm job {number}_1 was cancelled" in result.output
    assert ended(notes()) == Counter([0, 2])
    assert array_of(slurm) == ["0-2"], "what a person ended stays ended"


def test_the_last_task_ends_the_step_when_the_driver_is_dead(
    array: Callable[[int], Path],
    start_on_slurm: Callable[..., Running],
    run_on_slurm: Callable[..., Result],
    slurm: SlurmCluster,
    notes: Callable[[], list[str]],
    lab: Lab,
    tmp_path: Path,
) -> None:
    (tmp_path / "hold-2").touch()
    running = start_on_slurm(experiment=array(4))
    running.wait_for(lambda: len(ended(notes())) == 3 and begun(notes())[2], "one task is left")
    running.process.kill()
    running.process.wait()
    (tmp_path / "hold-2").unlink()
    status = lab.folder_of("parts") / ".executor_status"
    slurm.wait_for(lambda: status.read_text() == "SUCCESS", "the last task has ended the step")
    assert whole(lab.folder_of("parts"), 4)
    assert "1 step: 1 cached" in run_on_slurm(experiment=array(4)).output
    assert begun(notes()) == Counter(range(4))


def test_the_next_driver_takes_up_the_array_of_one_that_was_killed(
    array: Callable[[int], Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    notes: Callable[[], list[str]],
    lab: Lab,
    tmp_path: Path,
) -> None:
    for task in range(4):
        (tmp_path / f"hold-{task}").touch()
    first = start_on_slurm(experiment=array(4))
    first.wait_for(lambda: len(begun(notes())) == 4, "all tasks run")
    first.process.kill()
    first.process.wait()
    second = start_on_slurm(experiment=array(4))
    second.wait_for(lambda: "start  parts" in second.output, "the array is watched")
    for task in range(4):
        (tmp_path / f"hold-{task}").unlink()
    result = second.wait(120)
    assert result.code == 0, result.output
    assert whole(lab.folder_of("parts"), 4)
    assert begun(notes()) == Counter(range(4))
    assert len(slurm.calls("sbatch")) == 1


def test_ctrl_c_cancels_the_array_and_the_next_run_does_what_is_left(
    array: Callable[[int], Path],
    start_on_slurm: Callable[..., Running],
    run_on_slurm: Callable[..., Result],
    slurm: SlurmCluster,
    notes: Callable[[], list[str]],
    lab: Lab,
    tmp_path: Path,
) -> None:
    (tmp_path / "hold-1").touch()
    running = start_on_slurm(experiment=array(3))
    running.wait_for(lambda: len(ended(notes())) == 2 and begun(notes())[1], "one task is left")
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(60).code != 0
    slurm.wait_for(lambda: not [job for job in slurm.jobs() if job.state in ("RUNNING", "PENDING")], "it is cancelled")
    folder = lab.folder_of("parts")
    assert (folder / ".executor_status").read_text() == "CANCELLED"
    (tmp_path / "hold-1").unlink()
    result = run_on_slurm(experiment=array(3))
    assert result.code == 0, result.output
    assert "2 of 3 tasks are done" in result.output
    assert whole(folder, 3)
    assert begun(notes()) == Counter([0, 1, 1, 2])


def test_two_drivers_at_once_do_each_task_once(
    array: Callable[[int], Path],
    start_on_slurm: Callable[..., Running],
    notes: Callable[[], list[str]],
    lab: Lab,
    slurm: SlurmCluster,
) -> None:
    both = [start_on_slurm("--nolock", experiment=array(5)) for _ in range(2)]
    results = [running.wait(120) for running in both]
    assert [result.code for result in results] == [0, 0], "\n".join(result.output for result in results)
    assert whole(lab.folder_of("parts"), 5)
    assert begun(notes()) == Counter(range(5))


def test_more_tasks_than_an_array_takes_are_several_arrays(
    array: Callable[[int], Path],
    run_on_slurm: Callable[..., Result],
    cluster_file: Callable[[str], str],
    slurm: SlurmCluster,
    notes: Callable[[], list[str]],
    lab: Lab,
    in_front_of: Callable[[str, str], dict[str, str]],
) -> None:
    small = in_front_of("scontrol", 'case "$*" in *"show config"*) echo "MaxArraySize = 3"; exit 0;; esac')
    name = cluster_file("slurm:\n  partition: cpu\n  tasks_at_once: 2\n")
    result = run_on_slurm(experiment=array(7), env=small, config={"cluster": name})
    assert result.code == 0, result.output
    assert whole(lab.folder_of("parts"), 7)
    assert begun(notes()) == Counter(range(7))
    assert array_of(slurm) == ["0-2%2", "0-2%2", "0%2"]


def test_the_tutorial_counts_words_in_an_array_though_driver_and_jobs_are_killed(
    start_on_slurm: Callable[..., Running], run_on_slurm: Callable[..., Result], slurm: SlurmCluster, lab: Lab
) -> None:
    tutorial = REPOSITORY / "experiments" / "tutorials" / "word_count.py"
    folder = lab.prefix / "word_count" / "counts-2f5818"

    def done() -> int:
        records = (folder / ".executor_tasks" / "round-1").glob("*.json")
        return sum(json.loads(path.read_text())["status"] == "SUCCESS" for path in records)

    first = start_on_slurm(experiment=tutorial)
    first.wait_for(lambda: done() >= 1, "a task is done")
    first.kill_everything()
    second = start_on_slurm(experiment=tutorial)
    second.wait_for(lambda: done() >= 3, "more tasks are done")
    second.kill_everything()
    slurm.run("scancel", "--user=root", "--signal=KILL", "--full")
    result = run_on_slurm(experiment=tutorial)
    assert result.code == 0, result.output
    assert done() == 16
    returned = json.loads((folder / ".artifact.json").read_text())
    assert [task["files"] for task in returned] == [13] * 8 + [12] * 8
    total = json.loads((lab.folder_of("word_count/total") / ".artifact.json").read_text())
    assert total["words"] == 200 * 20_000
