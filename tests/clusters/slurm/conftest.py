"""Runs on the test cluster."""

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.lab import REPOSITORY, Lab, Result, Running
from support.slurm.cluster import SlurmCluster

LEASE_SECONDS = "8"
"""A worker that was killed hard leaves its lease behind; nobody wants to wait a minute and a half for that here."""


@pytest.fixture
def on_slurm(slurm: SlurmCluster) -> dict[str, str]:
    """The environment of a driver that submits to the test cluster."""
    return {**slurm.environment, "MARIN_LEASE_LIFETIME_SECONDS": LEASE_SECONDS}


@pytest.fixture
def start_on_slurm(lab: Lab, on_slurm: dict[str, str]) -> Callable[..., Running]:
    """`start_on_slurm(*arguments, experiment=, env=, ...)` starts a run with the profile `slurm` and does not wait."""

    def launch(*arguments: str, env: Mapping[str, str] | None = None, **options: Any) -> Running:
        profile = ["--profile", str(REPOSITORY / "profiles" / "slurm")]
        return lab.start_snakemake(*profile, *arguments, env={**on_slurm, **(env or {})}, **options)

    return launch


@pytest.fixture
def run_on_slurm(start_on_slurm: Callable[..., Running]) -> Callable[..., Result]:
    """The same to its end: `.code` and `.output`."""

    def run(*arguments: str, timeout: float = 120.0, **options: Any) -> Result:
        return start_on_slurm(*arguments, **options).wait(timeout)

    return run


@pytest.fixture
def in_front_of(slurm: SlurmCluster, tmp_path: Path) -> Callable[[str, str], dict[str, str]]:
    """`in_front_of("sbatch", lines)` puts lines of shell before a command of Slurm: the environment that has it so."""

    def write(command: str, lines: str) -> dict[str, str]:
        before, after = tmp_path / "bin", slurm.environment["PATH"]
        before.mkdir(exist_ok=True)
        script = before / command
        script.write_text(f'#!/bin/sh\n{lines}\nPATH={shlex.quote(after)}\nexec {command} "$@"\n')
        script.chmod(0o755)
        return {"PATH": f"{before}{os.pathsep}{after}"}

    return write


@pytest.fixture
def cluster_file(tmp_path: Path) -> Callable[[str], str]:
    """`cluster_file(yaml)` writes a cluster file beside the experiment; its name is for `--config cluster=`."""

    def write(text: str) -> str:
        folder = tmp_path / "config" / "clusters"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "site.yaml").write_text(text)
        return "site"

    return write
