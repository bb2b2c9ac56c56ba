"""`marin-rules cluster check` on Slurm: its own word on the queues of a cluster's file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from marin_rules.checks import Verdict
from marin_rules.clusters.slurm.check import check_cluster
from support.slurm.cluster import SlurmCluster

FILE = """
slurm:
  partition: cpu
  gpus:
    A100: {partition: gpu, gres: a100, count: 2}
    H100: {partition: moon}
"""


def check(folder: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    program = [str(Path(sys.executable).with_name("marin-rules")), "cluster", "check", *words]
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def test_each_queue_of_the_file_is_tried(slurm: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "config" / "clusters").mkdir(parents=True)
    (tmp_path / "config" / "clusters" / "lab.yaml").write_text(FILE)
    found = check(tmp_path, slurm.environment, "--cluster", "lab", "--prefix", str(tmp_path))
    assert found.returncode == 1, found.stdout + found.stderr
    *lines, refused, command, _, count = found.stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        "ok           Slurm's commands",
        "ok           Slurm's controller",
        "ok           a job with --partition=cpu",
        "ok           a job with --partition=gpu --gpus-per-node=a100:1",
    ]
    assert refused.startswith("missing      a job with --partition=moon: sbatch failed: ")
    assert command.strip() == "sbatch --test-only --partition=moon --wrap=true"
    assert count == "5 checks: 1 missing, 0 could not be made"


def test_a_machine_without_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    commands, controller = check_cluster(None, str(tmp_path))
    assert (commands.verdict, controller.verdict) == (Verdict.MISSING, Verdict.UNKNOWN)
    assert commands.what == "Slurm's commands sbatch, squeue, scancel, scontrol, sinfo"
