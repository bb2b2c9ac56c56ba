"""The fixtures, as a pytest plugin.

The channel is made once in each worker that needs it; every test has environments of its own.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from conda import standin
from conda.channel import build_channel
from conda.installed import InstalledDriver

_ACTIVATE = """\
# To be sourced: activates the environment in the folder $1. As conda does, it replaces the entry on the PATH of the
# environment that was active before, where that stands; only without one is the new entry put in front.
if [[ ${CONDA_SHLVL:-0} -gt 0 && :$PATH: == *":$CONDA_PREFIX/bin:"* ]]; then
    PATH=":$PATH:"
    PATH="${PATH%%":$CONDA_PREFIX/bin:"*}:$1/bin:${PATH#*":$CONDA_PREFIX/bin:"}"
    PATH="${PATH#:}"
    PATH="${PATH%:}"
else
    PATH=$1/bin:$PATH
fi
export CONDA_PREFIX=$1 CONDA_SHLVL=$((${CONDA_SHLVL:-0} + 1)) PATH
"""


@pytest.fixture(scope="session")
def conda_installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `bin/conda`, `bin/activate` and a channel."""
    root = tmp_path_factory.mktemp("conda")
    build_channel(root / "channel")
    command = root / "bin" / "conda"
    command.parent.mkdir()
    words = [sys.executable, "-I", standin.__file__, str(root)]
    command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    command.chmod(0o755)
    (root / "bin" / "activate").write_text(_ACTIVATE)
    return root


@pytest.fixture
def conda(conda_installation: Path) -> dict[str, str]:
    """The environment variables of a user who has conda: with them, `snakemake --sdm conda` finds the stand-in."""
    return {"PATH": f"{conda_installation / 'bin'}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="session")
def installed_driver(tmp_path_factory: pytest.TempPathFactory) -> InstalledDriver:
    """marin_rules installed as a wheel, in a virtual environment that has Snakemake too."""
    return InstalledDriver.make(tmp_path_factory.mktemp("driver"))
