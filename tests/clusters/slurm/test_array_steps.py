"""Array steps on a real Slurm: a job array whose elements are tasks, each run once whatever happens to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        note(config, f"begin {me.task}")
        while os.path.exists(os.path.join(config.folder, f"hold-{me.task}")):
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


@dataclass
class ArrayOnSlurm:
    """An experiment with one step of so many tasks, which note when they begin and end, and can be held or let fail."""

    tasks: int
    lab: Lab
    slurm: SlurmCluster
    folder: Path
    start_on_slurm: Callable[..., Running]

    def start(self, *arguments: str, **options: Any) -> Running:
        file = self.lab.experiment(ARRAY.replace("TASKS", str(self.tasks)))
        return self.start_on_slurm(*arguments, experiment=file, **options)

    def run(self, *arguments: str, **options: Any) -> Result:
        return self.start(*arguments, **options).wait(120)

    def hold(self, *tasks: int) -> None:
        for task in tasks:
            (self.folder / f"hold-{task}").touch()

    def let_go(self) -> None:
        for path in self.folder.glob("hold-*"):
            path.unlink()

    @property
    def begun(self) -> Counter[int]:
        return self._noted("begin")

    @property
    def ended(self) -> Counter[int]:
        return self._noted("end")

    def _noted(self, word: str) -> Counter[int]:
        path = self.folder / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(int(line.split()[1]) for line in lines if line.startswith(word))

    @property
    def output(self) -> Path:
        return self.lab.folder_of("parts")

    @property
    def status(self) -> str:
        return (self.output / ".executor_status").read_text()

    @property
    def is_whole(self) -> bool:
        """Whether the output is that of all tasks: every shard in one part, and the list of what they returned."""
        parts = [(self.output / f"part-{task}").read_text().split() for task in range(self.tasks)]
        returned = json.loads((self.output / ".artifact.json").read_text())
        shards = sorted(shard for part in parts for shard in part)
        return (
            shards == [f"shard-{number:02}" for number in range(20)]
            and returned == [task * 10 for task in range(self.tasks)]
            and self.status == "SUCCESS"
        )

    @property
    def submitted(self) -> list[str]:
        """The `--array` option of each sbatch, in order."""
        words = [word for call in self.slurm.calls("sbatch") for word in call if word.startswith("--array=")]
        return [word.removeprefix("--array=") for word in words]

    @property
    def number(self) -> str:
        """The number of the one array that is in the queue."""
        (number,) = set(self.slurm.run("squeue", "--noheader", "--format=%F").split())
        return number


@pytest.fixture
def array(
    lab: Lab, slurm: SlurmCluster, tmp_path: Path, start_on_slurm: Callable[..., Running]
) -> Callable[[int], ArrayOnSlurm]:
    return lambda tasks: ArrayOnSlurm(tasks, lab, slurm, tmp_path, start_on_slurm)


type MakeArray = Callable[[int], ArrayOnSlurm]


def test_the_tasks_of_a_step_are_the_elements_of_one_array(array: MakeArray) -> None:
    step = array(6)
    result = step.run()
    assert result.code == 0, result.output
    assert step.submitted == ["0-5"]
    assert step.is_whole
    assert step.begun == step.ended == Counter(range(6))
    assert "tasks  parts: 6/6" in result.output
    records = [json.loads(path.read_text()) for path in (step.output / ".executor_tasks/round-1").glob("*.json")]
    assert {record["slurm"]["job_id"].split("_")[1] for record in records} == set("012345")
    assert "1 step: 1 cached" in step.run().output
    assert len(step.submitted) == 1


def test_only_tasks_that_failed_run_again(array: MakeArray, tmp_path: Path) -> None:
    step = array(6)
    for task in (1, 4):
        (tmp_path / f"fail-{task}").touch()
    result = step.run("--retries", "0")
    assert result.code != 0
    assert "2 of 6 tasks failed: task 1: ValueError: no luck with 1; also task 4" in result.output
    assert step.ended == Counter([0, 2, 3, 5])
    assert step.status == "FAILED"
    for task in (1, 4):
        (tmp_path / f"fail-{task}").unlink()
    dry = step.run("-n")
    assert "4 of 6 tasks are done" in dry.output
    assert "-> slurm: 6 tasks, each partition cpu, 1 CPU, 200M" in dry.output
    result = step.run()
    assert result.code == 0, result.output
    assert step.submitted == ["0-5", "0,3"]
    assert step.begun == Counter([0, 1, 1, 2, 3, 4, 4, 5])
    assert step.is_whole


def test_elements_that_lose_their_machines_are_done_again_and_no_others(array: MakeArray, slurm: SlurmCluster) -> None:
    """One is queued again by Slurm, one runs out of time; the controller restarts."""
    step = array(4)
    step.hold(*range(4))
    running = step.start()
    running.wait_for(lambda: len(step.begun) == 4, "all tasks run")
    number = step.number
    slurm.run("scontrol", "requeue", f"{number}_0")
    slurm.restart_controller()
    slurm.run_out_of_time(f"{number}_2")
    step.let_go()
    result = running.wait(120)
    assert result.code == 0, result.output
    assert step.is_whole
    assert step.ended[1] == step.ended[3] == step.begun[1] == step.begun[3] == 1
    assert step.begun[0] == 2


def test_a_person_cancels_one_element_and_the_others_go_on(array: MakeArray, slurm: SlurmCluster) -> None:
    step = array(3)
    step.hold(*range(3))
    running = step.start()
    running.wait_for(lambda: len(step.begun) == 3, "all tasks run")
    number = step.number
    slurm.run("scancel", f"{number}_1")
    running.wait_for(lambda: "failed parts: task 1" in running.output, "the cancelled task is seen")
    step.let_go()
    result = running.wait(120)
    assert result.code != 0
    assert f"1 of 3 tasks failed: task 1: slurm job {number}_1 was cancelled" in result.output
    assert step.ended == Counter([0, 2])
    assert step.submitted == ["0-2"], "what a person ended stays ended"


def test_an_array_that_is_held_is_told_of_once_and_one_that_never_began_has_printed_nothing(
    array: MakeArray, slurm: SlurmCluster
) -> None:
    step = array(3)
    running = step.start("--set-resources", "work:slurm_extra=--hold")
    running.wait_for(lambda: "waits  parts: " in running.output, "a word on why it waits")
    number = step.number
    slurm.run("scancel", number)
    result = running.wait(120)
    assert result.output.count("waits  parts: ") == 1
    assert f"waits  parts: slurm job {number}_0 has JobHeldUser: it is held" in result.output
    assert f"failed parts: task 2: slurm job {number}_2 was cancelled\n" in result.output


def test_the_last_task_ends_the_step_when_the_driver_is_dead(array: MakeArray, slurm: SlurmCluster) -> None:
    step = array(4)
    step.hold(2)
    running = step.start()
    running.wait_for(lambda: len(step.ended) == 3 and step.begun[2], "one task is left")
    running.process.kill()
    running.process.wait()
    step.let_go()
    slurm.wait_for(lambda: step.status == "SUCCESS", "the last task has ended the step")
    assert step.is_whole
    assert "1 step: 1 cached" in step.run().output
    assert step.begun == Counter(range(4))


def test_the_next_driver_takes_up_the_array_of_one_that_was_killed(array: MakeArray) -> None:
    step = array(4)
    step.hold(*range(4))
    first = step.start()
    first.wait_for(lambda: len(step.begun) == 4, "all tasks run")
    first.process.kill()
    first.process.wait()
    second = step.start()
    second.wait_for(lambda: "start  parts" in second.output, "the array is watched")
    step.let_go()
    result = second.wait(120)
    assert result.code == 0, result.output
    assert step.is_whole
    assert step.begun == Counter(range(4))
    assert len(step.submitted) == 1


def test_ctrl_c_cancels_the_array_and_the_next_run_does_what_is_left(array: MakeArray, slurm: SlurmCluster) -> None:
    step = array(3)
    step.hold(1)
    running = step.start()
    running.wait_for(lambda: len(step.ended) == 2 and step.begun[1], "one task is left")
    running.interrupt()
    assert running.wait(60).code != 0
    slurm.wait_for(lambda: not [job for job in slurm.jobs() if job.state in ("RUNNING", "PENDING")], "it is cancelled")
    assert step.status == "CANCELLED"
    step.let_go()
    result = step.run()
    assert result.code == 0, result.output
    assert "2 of 3 tasks are done" in result.output
    assert step.is_whole
    assert step.begun == Counter([0, 1, 1, 2])


def test_two_drivers_at_once_do_each_task_once(array: MakeArray) -> None:
    step = array(5)
    both = [step.start("--nolock") for _ in range(2)]
    results = [running.wait(120) for running in both]
    assert [result.code for result in results] == [0, 0], "\n".join(result.output for result in results)
    assert step.is_whole
    assert step.begun == Counter(range(5))


def test_more_tasks_than_an_array_takes_are_several_arrays(
    array: MakeArray, cluster_file: Callable[[str], str], in_front_of: Callable[[str, str], dict[str, str]]
) -> None:
    small = in_front_of("scontrol", 'case "$*" in *"show config"*) echo "MaxArraySize = 3"; exit 0;; esac')
    name = cluster_file("slurm:\n  partition: cpu\n  tasks_at_once: 2\n")
    step = array(7)
    result = step.run(env=small, config={"cluster": name})
    assert result.code == 0, result.output
    assert step.is_whole
    assert step.begun == Counter(range(7))
    assert step.submitted == ["0-2%2", "0-2%2", "0%2"]


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
