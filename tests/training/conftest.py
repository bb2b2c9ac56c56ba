"""The locked environments of the groups `train` and `fasttext`, made by the builder that makes them for steps.

They are kept where environments of steps are always kept (MARIN_ENVIRONMENTS, else the user's cache), so that only the
first run of the suite on a machine builds them. The builder lets one process build, under a lease, while others wait.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from marin_rules.software.build import ensure_environment
from marin_rules.software.environment import Environment, environments_folder
from marin_rules.software.package import package_folder
from support.lab import REPOSITORY, Lab
from support.made_once import made_once
from training.training_runs import SCRIPT


@pytest.fixture(scope="session")
def training_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of the group `train`, which finds the checkout's marin_rules."""
    return _python_of("train", tmp_path_factory)


@pytest.fixture(scope="session")
def fasttext_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of the group `fasttext`, which finds the checkout's marin_rules."""
    return _python_of("fasttext", tmp_path_factory)


def _python_of(group: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = environments_folder()
    environment = Environment.of_groups([group], str(REPOSITORY), prefix="out")
    python = ensure_environment(environment, folder, lambda text: print(text, file=sys.stderr))
    # What the worker's launcher does for a step, so that the fixture is one path to start.
    start = tmp_path_factory.mktemp(group) / "python"
    package = shlex.quote(package_folder(folder))
    start.write_text(f'#!/bin/sh\nPYTHONPATH={package} exec {shlex.quote(python)} "$@"\n')
    start.chmod(0o755)
    return start


@pytest.fixture
def training_lab(lab: Lab) -> Lab:
    """A lab whose runs find the environments of the suite: a step that names `train` or `fasttext` gets them."""
    lab.environment["MARIN_ENVIRONMENTS"] = environments_folder()
    return lab


@pytest.fixture(scope="session")
def trained(training_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of `training_runs.py`, and `whole`: a model that was trained on it without a break."""
    return made_once(
        tmp_path_factory, "trained", lambda folder: run_trainings(training_python, folder, ["prepare", "whole"])
    )


def run_trainings(python: Path, folder: Path, names: Sequence[str]) -> str:
    """Some runs of `training_runs.py`, in a process of their own; returns what it printed."""
    variables = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY / "tests"),
        "MARIN_PREFIX": str(folder / "marin"),
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_OFFLINE": "1",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [str(python), str(SCRIPT), str(folder), *names]
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout
