"""A training that is killed with its driver and its worker, or stopped, again and again: it ends as if nothing had
happened.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from support.lab import REPOSITORY, Lab, Running
from training.outputs import metrics
from training.training_runs import STEPS

EXPERIMENT = """
import sys

sys.path.insert(0, {tests!r})
from training.training_runs import MODEL, RUNNING, hyperparameters

from marin_rules import ExecutorStep, ResourceConfig, executor_main, remote
from marin_rules.pipeline.train import train
from marin_rules.pipeline.training.config import TrainConfig

config = TrainConfig({tokens!r}, MODEL, hyperparameters(), running=RUNNING)
resources = ResourceConfig.with_cpu(cpu={cpu}, ram="1500m", replicas={replicas})
step = ExecutorStep("model", remote(train, resources=resources, pip_dependency_groups=["train"]), config)

if __name__ == "__main__":
    executor_main(steps=[step])
"""


def training(lab: Lab, trained: Path, *, cpu: int = 2, replicas: int = 1) -> Path:
    """An experiment of one step: the training of `whole`."""
    tests, tokens = str(REPOSITORY / "tests"), str(trained / "tokens")
    return lab.experiment(EXPERIMENT.format(tests=tests, tokens=tokens, cpu=cpu, replicas=replicas))


def test_killed_three_times_and_stopped_once_it_ends_with_the_same_losses(training_lab: Lab, trained: Path) -> None:
    lab, file = training_lab, training(training_lab, trained)

    def output() -> Path:
        return lab.folder_of("model")

    def checkpoint(step: int) -> Path:
        return output() / "checkpoints" / f"step-{step}"

    def has_come_to(step: int, whole: int) -> Callable[[Running], bool]:
        """And has a whole checkpoint of an earlier step: it is written while training goes on."""
        return lambda run: (
            any(int(done) >= step for done in re.findall(rf"step (\d+)/{STEPS}  loss", run.output))
            and (checkpoint(whole) / "files.json").exists()
        )

    def writes_checkpoint(run: Running) -> bool:
        """The folder is there, and what makes it whole is not."""
        return checkpoint(40).exists() and not (checkpoint(40) / "files.json").exists()

    def kill(run: Running) -> None:
        run.kill_everything()
        assert lab.status_of("model") == "RUNNING", run.output

    def stop(run: Running) -> None:
        run.interrupt()
        assert run.wait().code != 0
        assert lab.status_of("model") == "CANCELLED", run.output

    resumed, reached = [], []
    for moment, end in (
        (has_come_to(25, whole=20), kill),
        (writes_checkpoint, kill),
        (has_come_to(48, whole=40), stop),
        (has_come_to(66, whole=60), kill),
    ):
        run = lab.start_snakemake(experiment=file)
        run.wait_for(lambda run=run, moment=moment: moment(run), "the moment to be ended in")
        end(run)
        resumed += re.findall(r"resumes after step (\d+)", run.output)
        reached += re.findall(rf"step (\d+)/{STEPS}  loss", run.output)[-1:]
    assert (output() / "report" / "loss.svg").exists(), "a curve to look at while it trains"
    last = lab.snakemake(experiment=file, env={"JAX_DEBUG_LOG_MODULES": "jax._src.compiler"})
    assert last.code == 0, last.output
    assert "Unknown leaf type" not in last.output
    assert "Persistent compilation cache hit for 'jit__train_step'" in last.output, "attempts share what they compile"
    resumed += re.findall(r"resumes after step (\d+)", last.output)
    after_first, after_second, after_stop, after_last = resumed
    assert after_first == "21"
    # The second kill was in the middle of a checkpoint, or just after it: at most one interval is lost.
    assert after_second in ("21", "41"), resumed
    assert after_stop == reached[2], "a stop signal, unlike a kill, leaves time for a checkpoint: no step is lost"
    assert after_last == "61"

    assert metrics(output()) == metrics(trained / "whole")
    assert metrics(output(), "eval/loss") == metrics(trained / "whole", "eval/loss")
    weights = [folder / "hf" / f"step-{STEPS - 1}" / "model.safetensors" for folder in (output(), trained / "whole")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
