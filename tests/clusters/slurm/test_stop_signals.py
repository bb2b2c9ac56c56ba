"""A training step that handles SIGTERM as such loops do: it saves a checkpoint, leaves its loop and returns. Whatever
stopped it, that is no success; what Slurm took away goes on from the checkpoint to the true end."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.lab import Lab, Running
from support.slurm.cluster import SlurmCluster

TRAINING = """
    import os, signal, time
    from dataclasses import dataclass
    from marin_rules import *

    @dataclass(frozen=True)
    class Config:
        attempts: int
        model: object = None
        output_path: str = THIS_OUTPUT_PATH

    def read(path):
        with open(path) as file:
            return int(file.read())

    def train(config):
        checkpoint = os.path.join(config.output_path, "checkpoint")
        attempt = read(checkpoint) + 1 if os.path.exists(checkpoint) else 1
        stopping = []
        signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
        with open(f"begun-{attempt}", "w"):
            pass
        while attempt < config.attempts and not stopping:
            time.sleep(0.05)
        with open(checkpoint, "w") as file:
            file.write(str(attempt))
        return {"attempt": attempt}

    def evaluate(config):
        return {"evaluated": read(os.path.join(config.model, "checkpoint"))}

    resources = ResourceConfig(ram="300m")
    model = ExecutorStep("model", remote(train, resources=resources), Config({attempts}))
    score = ExecutorStep("score", evaluate, Config(0, output_path_of(model)))
    if __name__ == "__main__":
        executor_main(steps=[score])
    """


@pytest.fixture
def training(lab: Lab) -> Callable[[int], Path]:
    """`training(3)` writes the experiment: two attempts train until they are stopped, the third comes to the end."""
    return lambda attempts: lab.experiment(TRAINING.replace("{attempts}", str(attempts)))


@pytest.fixture
def wait_for_attempt(tmp_path: Path, slurm: SlurmCluster) -> Callable[[Running, int], str]:
    """`wait_for_attempt(run, 1)` waits until that attempt trains; returns the number of its job."""

    def wait(run: Running, attempt: int) -> str:
        run.wait_for((tmp_path / f"begun-{attempt}").exists, f"attempt {attempt}")
        (running,) = [job.id for job in slurm.jobs() if job.state == "RUNNING" and job.name == "model"]
        return running

    return wait


@pytest.fixture
def returned(lab: Lab) -> Callable[[str], Any]:
    return lambda name: json.loads((lab.folder_of(name) / ".artifact.json").read_text())


def _preempt(slurm: SlurmCluster, number: str) -> None:
    node = slurm.job(number).nodes
    slurm.submit("exec true", "--partition=urgent", f"--nodelist={node}", "--exclusive", "--mem=3900")


def test_a_step_that_slurm_stops_goes_on_to_its_true_end(
    training: Callable[[int], Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    wait_for_attempt: Callable[[Running, int], str],
    returned: Callable[[str], Any],
) -> None:
    """Requeued by hand, then preempted, then at its time limit."""
    run = start_on_slurm(
        "--retries", "0", "--set-resources", "train:slurm_partition=spare", "train:runtime=50", experiment=training(4)
    )
    slurm.run("scontrol", "requeue", wait_for_attempt(run, 1))
    _preempt(slurm, wait_for_attempt(run, 2))
    slurm.run_out_of_time(wait_for_attempt(run, 3))
    result = run.wait(180)
    assert result.code == 0, result.output
    assert returned("model") == {"attempt": 4}
    assert returned("score") == {"evaluated": 4}
    assert len(re.findall(r"again  model: .* \(\d of at most 20\)", result.output)) == 3, result.output


@pytest.mark.parametrize("partition", ["scavenge", "graceful", "gracious", "cpu"])
def test_a_step_whose_job_ends_by_itself_when_it_is_told_to_goes_on_to_its_true_end(
    partition: str,
    training: Callable[[int], Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    wait_for_attempt: Callable[[Running, int], str],
    returned: Callable[[str], Any],
) -> None:
    """Preempted for good, or with a time of grace; or by a signal alone, as `--signal=B:TERM@60` sends it, when Slurm
    calls the end of the job an ordinary failure."""
    run = start_on_slurm(
        "--retries", "0", "--set-resources", f"train:slurm_partition={partition}", experiment=training(2)
    )
    number = wait_for_attempt(run, 1)
    if partition == "cpu":
        slurm.run("scancel", "--signal=TERM", "--batch", number)
    else:
        _preempt(slurm, number)
    result = run.wait(180)
    assert result.code == 0, result.output
    assert returned("model") == {"attempt": 2}
    assert returned("score") == {"evaluated": 2}
    assert "(1 of at most 20)" in result.output


def test_a_step_that_a_person_stops_is_cancelled_and_goes_on_when_it_is_run_again(
    training: Callable[[int], Path],
    start_on_slurm: Callable[..., Running],
    slurm: SlurmCluster,
    wait_for_attempt: Callable[[Running, int], str],
    lab: Lab,
    returned: Callable[[str], Any],
) -> None:
    """Once with scancel, then with Ctrl-C in the driver."""
    file = training(3)
    run = start_on_slurm("--retries", "1", experiment=file)
    slurm.run("scancel", wait_for_attempt(run, 1))
    assert run.wait(60).code != 0
    assert (lab.status_of("model"), lab.status_of("score")) == ("CANCELLED", None)

    run = start_on_slurm("--retries", "1", experiment=file)
    number = wait_for_attempt(run, 2)
    run.interrupt()
    assert run.wait(60).code != 0
    lab.wait_until(lambda: slurm.job(number).state == "CANCELLED", "the end of the job")
    lab.wait_until(lambda: lab.status_of("model") == "CANCELLED", "its status")
    assert lab.status_of("score") is None
    assert not list(lab.prefix.rglob(".artifact.json"))

    result = start_on_slurm("--retries", "0", experiment=file).wait(120)
    assert result.code == 0, result.output
    assert (returned("model"), returned("score")) == ({"attempt": 3}, {"evaluated": 3})
