"""One model trained by two processes on two nodes of a real Slurm: they meet, share batches, are stopped together, and
leave one model.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.lab import REPOSITORY, Lab
from support.slurm.cluster import SlurmCluster
from training.outputs import facts, metrics
from training.test_killed import training
from training.training_runs import STEPS


def test_two_processes_train_the_model_of_one(training_lab: Lab, slurm: SlurmCluster, trained: Path) -> None:
    lab, file = training_lab, training(training_lab, trained, cpu=1, replicas=2)
    profile = ("--profile", REPOSITORY / "profiles" / "slurm")

    def steps_done() -> int:
        done = list(lab.prefix.glob("model-*/metrics.jsonl"))
        return done[0].read_text().count('"train/loss"') if done else 0

    run = lab.start_snakemake(*profile, experiment=file, env=slurm.environment)
    run.wait_for(lambda: steps_done() >= 28, "the moment to be stopped in", timeout=300)
    run.interrupt()
    assert run.wait().code != 0
    lab.wait_until(lambda: lab.status_of("model") == "CANCELLED", "the job has ended")
    reached = steps_done()
    assert 28 <= reached < STEPS
    result = lab.snakemake(*profile, experiment=file, env=slurm.environment, timeout=300)
    assert result.code == 0, result.output
    log = (lab.folder_of("model") / ".executor_log").read_text()
    assert f"resumes after step {reached}\n" in log, "no step is lost"
    found, alone = lab.folder_of("model"), trained / "whole"
    assert facts(found)["device"] == {"kind": "cpu", "count": 2, "processes": 2}
    for name in ("train/loss", "eval/loss"):
        losses, wanted = dict(metrics(found, name)), dict(metrics(alone, name))
        # Sums over two halves of a batch are rounded otherwise, and that adds up over the steps.
        assert losses == pytest.approx(wanted, rel=2e-3)
    assert metrics(found)[0][1] == pytest.approx(metrics(alone)[0][1], rel=1e-6)
    assert (found / "hf" / "step-79" / "model.safetensors").exists()
