"""Where a step runs that is not sent away, in the words of the table of steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from marin_rules.clusters import this_machine
from marin_rules.driver.destination import destination_here, with_environment
from marin_rules.machines import MachineRequest
from marin_rules.software.environment import Environment
from support.small_plans import plan_of, step

SMALL = MachineRequest(cpu=2, memory_mb=1024, disk_mb=0)
TORCH = Environment(("torch==2",), "3.13", "cpython", "linux-x86_64", ("gpu",))


@pytest.mark.parametrize(
    ("machines", "words"),
    [
        (None, None),
        (SMALL, None),
        (replace(SMALL, gpus=1), None),
        (replace(SMALL, cpu=4, memory_mb=8192), None),
        (replace(SMALL, gpus=2), "here: without the 2 GPUs it asks for"),
        (replace(SMALL, tpus=("v5p-8",)), "here: without the TPU v5p-8 it asks for"),
        (replace(SMALL, cpu=5), "here: without the 5 cores it asks for"),
        (replace(SMALL, memory_mb=16384), "here: without the 16G of memory it asks for"),
        (replace(SMALL, replicas=3, cpu=64), "here: without the 64 cores and 3 machines it asks for"),
    ],
)
@pytest.mark.parametrize("software", [None, 0])
def test_a_step_on_this_machine(
    machines: MachineRequest | None,
    words: str | None,
    software: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine with four cores, 8 GB and one GPU."""
    monkeypatch.setattr(this_machine, "memory_mb", lambda: 8192)
    monkeypatch.setattr(this_machine.os, "cpu_count", lambda: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    plan = plan_of(tmp_path, step("a"))
    plan.software = [TORCH]
    planned = replace(plan.steps[0], machines=machines, software=software)
    with_it = words if software is None else f"{words or 'here'}, environment {TORCH.name}"
    assert destination_here(plan, planned) == with_it


def test_an_environment_is_named_wherever_the_step_goes(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, step("a"))
    plan.software = [TORCH]
    planned = replace(plan.steps[0], software=0)
    assert with_environment("slurm: 2 nodes", plan, planned) == f"slurm: 2 nodes, environment {TORCH.name}"
    assert with_environment("slurm: 2 nodes", plan, plan.steps[0]) == "slurm: 2 nodes"
