"""The sbatch command of a step: one task on each machine, and the worker as the job's own process.

The worker takes the place of the batch script's shell. So Slurm's signals reach it (a shell in between would sit on
them until its child has ended), and when it ends, the job ends.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin_rules.clusters.slurm.commands import SlurmError, run_command
from marin_rules.clusters.slurm.queue import Tag

PLAIN_OPTIONS = {
    "slurm_partition": "--partition",
    "slurm_account": "--account",
    "qos": "--qos",
    "reservation": "--reservation",
    "constraint": "--constraint",
    "mem_mb": "--mem",
}
"""Resources, under the names that the Slurm plug-in of Snakemake has for them, that every way to Slurm spells alike."""

_OPTIONS = {**PLAIN_OPTIONS, "gres": "--gres", "runtime": "--time", "cpus_per_task": "--cpus-per-task"}


@dataclass(frozen=True)
class Submission:
    """A job to be submitted."""

    name: str
    tag: Tag
    command: str
    """A line of shell."""

    log: str
    """Where the job's own output goes; `%j` stands for its id."""

    folder: str
    resources: Mapping[str, Any]
    requeue: bool = True
    excluded_nodes: tuple[str, ...] = ()

    def words(self) -> list[str]:
        nodes = self.resources.get("nodes") or 1
        words = [
            "sbatch",
            "--parsable",
            f"--job-name={self.name}",
            f"--comment={self.tag}",
            f"--output={self.log}",
            "--open-mode=append",  # A requeued job goes on in the same file.
            f"--chdir={self.folder}",
            "--export=ALL",
            "--requeue" if self.requeue else "--no-requeue",
            f"--nodes={nodes}",
            f"--ntasks={nodes}",
            "--ntasks-per-node=1",
        ]
        words += [
            f"{option}={self.resources[name]}"
            for name, option in _OPTIONS.items()
            if self.resources.get(name) not in (None, "")
        ]
        if self.resources.get("gpu"):
            model = self.resources.get("gpu_model")
            words.append(f"--gpus-per-node={f'{model}:' if model else ''}{self.resources['gpu']}")
        if self.excluded_nodes:
            words.append(f"--exclude={','.join(self.excluded_nodes)}")
        return [*words, *shlex.split(self.resources.get("slurm_extra") or "")]

    def script(self) -> str:
        return f"#!/usr/bin/env bash\n{self.command}\n"

    def submit(self, environment: Mapping[str, str]) -> str:
        """Hand the job to Slurm; returns its id. The environment travels with it, and is written down nowhere else."""
        os.makedirs(os.path.dirname(self.log), exist_ok=True)
        answer = run_command(*self.words(), stdin=self.script(), environment=environment, timeout=60.0)
        # Some sites print a greeting first; a cluster's name may follow the number.
        number = (answer.strip().splitlines() or [""])[-1].split(";")[0].strip()
        if not number.isdecimal():
            raise SlurmError(f"sbatch printed no number of a job, but {answer.strip()[-200:]!r}")
        return number
