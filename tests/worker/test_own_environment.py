"""A step in an environment that its node has to make, since it shares no files with the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from marin_rules import ExecutorStep, remote
from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.plan_file import write_plan
from marin_rules.plans.run import new_run
from support.lab import REPOSITORY


@pytest.mark.processes
def test_the_worker_runs_in_the_environment_that_its_node_has_made(tmp_path: Path) -> None:
    prefix = str(tmp_path / "out")

    def look(config: Any) -> dict[str, str]:
        import iniconfig

        return {"prefix": sys.prefix, "iniconfig": str(iniconfig.__file__)}

    step = ExecutorStep("look", remote(look, pip_dependency_groups=["iniconfig==2.0.0"]), {})
    plan = freeze(make_plan([step], prefix=prefix), new_run(prefix=prefix, caller_path=str(tmp_path / "x.py")))
    write_plan(plan, plan.run.plan_path)
    node = tmp_path / "node"
    node.mkdir(0o700)
    words = ["--digest", plan.digest, "--plan", plan.run.plan_path, "--step", plan.steps[0].key]

    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-P", "-m", "marin_rules.worker.own_environment", "marin_rules.worker", *words],
            cwd=node,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stderr
    (environment,) = [path for path in (node / "environments").iterdir() if not path.name.startswith(".")]
    found = json.loads((Path(plan.steps[0].output_path) / ".artifact.json").read_text())
    assert found["prefix"] == str(environment)
    assert found["iniconfig"].startswith(str(environment))
