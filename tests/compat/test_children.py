"""Marin's modules in the processes that a script or step starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from marin_rules.compat.children import STUBS

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


@pytest.mark.processes
def test_a_child_whose_python_has_no_marin_rules_gets_its_own(tmp_path: Path) -> None:
    """A step may start the Python of Marin's own environment, which inherits PYTHONPATH."""
    (tmp_path / "own" / "fray").mkdir(parents=True)
    (tmp_path / "own" / "fray" / "__init__.py").write_text("WHOSE = 'its own'\n")
    (tmp_path / "own" / "fray" / "inner.py").write_text("from fray import WHOSE\n")

    def run(source: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-c", source]  # Without site-packages.
        path = os.pathsep.join([STUBS, str(tmp_path / "own")])
        variables = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60, check=False
        )

    ended = run("from fray.inner import WHOSE; import fray; print(WHOSE, fray.__file__)")
    assert (ended.stdout, ended.stderr) == (f"its own {tmp_path}/own/fray/__init__.py\n", "")
    assert run("import rigging").stderr.endswith("ModuleNotFoundError: No module named 'rigging'\n")
