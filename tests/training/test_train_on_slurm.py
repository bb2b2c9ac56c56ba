"""One model trained by two processes on two nodes of a real Slurm: they meet, share batches, and leave one model."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.lab import REPOSITORY, Lab
from support.slurm.cluster import SlurmCluster
from training.outputs import facts, metrics
from training.test_killed import training


def test_two_processes_train_the_model_of_one(training_lab: Lab, slurm: SlurmCluster, trained: Path) -> None:
    lab = training_lab
    result = lab.snakemake(
        *("--profile", REPOSITORY / "profiles" / "slurm"),
        experiment=training(lab, trained, cpu=1, replicas=2),
        env=slurm.environment,
        timeout=300,
    )
    assert result.code == 0, result.output
    found, alone = lab.folder_of("model"), trained / "whole"
    assert facts(found)["device"] == {"kind": "cpu", "count": 2, "processes": 2}
    for name in ("train/loss", "eval/loss"):
        losses, wanted = dict(metrics(found, name)), dict(metrics(alone, name))
        # Sums over two halves of a batch are rounded otherwise, and that adds up over the steps.
        assert losses == pytest.approx(wanted, rel=2e-3)
    assert metrics(found)[0][1] == pytest.approx(metrics(alone)[0][1], rel=1e-6)
    assert (found / "hf" / "step-79" / "model.safetensors").exists()
