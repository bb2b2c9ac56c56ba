"""What `make` hands to the shell."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.processes
@pytest.mark.parametrize("name", ["x.py", "Anna's Prüfstand/x y.py", "a; b.py", '"x".py'])
def test_run_takes_any_name_of_an_experiment(name: str) -> None:
    command = ["make", "--dry-run", "run", f"EXPERIMENT={name}", f"PREFIX=out {name}"]
    # The tests themselves are run by `make`, whose flags and depth are not those of a person's.
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    shown = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True).stdout
    words = shlex.split(shown.splitlines()[-1])
    assert words[-3:] == ["--config", f"experiment={name}", f"prefix=out {name}"]
