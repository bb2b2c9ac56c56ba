"""Marin's modules in the processes that a script or step starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import multiprocessing, subprocess, sys
from marin.execution.executor import ExecutorStep

def where(name):
    from fray.types import ResourceConfig
    return ResourceConfig.__module__, ExecutorStep.__module__

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(*pool.apply(where, ["x"]), flush=True)
    started = "from marin.execution.executor import ExecutorStep; import fray.types; print(ExecutorStep.__module__)"
    subprocess.run([sys.executable, "-c", started], check=True)
"""


@pytest.mark.processes
def test_children_find_them_too(tmp_path: Path) -> None:
    """Spawned ones get the search path of their parent, others only PYTHONPATH."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "marin_rules.compat", "script.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == ("marin_rules.resources marin_rules.steps\nmarin_rules.steps\n", "")
