"""A repository written for Marin moves over, as docs/from-marin.md says: first as it is, then by its imports."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from marin_rules.commands.main import main
from marin_rules.plans.experiment_file import load_experiment
from marin_rules.plans.prepare import PlanSettings, prepare
from marin_rules.state.status import Status, read_statuses
from support.lab import Lab

REPOSITORY = Path(__file__).resolve().parents[1]
MARIN = REPOSITORY / "tests" / "golden" / "marin_repository"
RATES = [0.1, 0.3, 0.5]


@pytest.fixture
def repository(lab: Lab) -> Path:
    shutil.copytree(MARIN / "experiments", lab.folder / "experiments")
    return lab.folder


@pytest.fixture
def other_experiments() -> Iterator[None]:
    """Modules named `experiments` that the test imports are not this checkout's, and nobody finds them afterwards."""

    def forget() -> dict[str, ModuleType]:
        names = [name for name in sys.modules if name.split(".")[0] == "experiments"]
        return {name: sys.modules.pop(name) for name in names}

    ours = forget()
    yield
    forget()
    sys.modules.update(ours)


def result(prefix: Path, pattern: str) -> Any:
    (folder,) = prefix.glob(pattern)
    assert (folder / ".executor_status").read_text() == "SUCCESS"
    return json.loads((folder / ".artifact.json").read_text())


@pytest.mark.usefixtures("other_experiments")
def test_a_repository_moves_over_in_three_steps(
    repository: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # 1. The StepSpec pipeline as it is, with python.
    prefix = {"MARIN_PREFIX": str(lab.prefix)}
    ran = lab.python("-m", "marin_rules.compat", "experiments/wiki.py", env=prefix)
    assert ran.code == 0, ran.output
    assert ran.started == ["clean/wiki", "raw/wiki"]
    assert result(lab.prefix, "clean/wiki_" + "?" * 8) == {"kept": 5, "of": 6}

    # 2. The sweep as it is, with snakemake: both kinds of steps in one run, and what is done is done.
    ran = lab.snakemake(experiment="experiments/sweep.py", config={"compat": "true"})
    assert ran.code == 0, ran.output
    assert ran.cached == ["clean/wiki", "raw/wiki"]
    assert ran.started == [*(f"checkpoints/wiki-{rate}" for rate in RATES), "tokenized/wiki"]
    found = [result(lab.prefix, f"checkpoints/wiki-{rate}-" + "?" * 6) for rate in RATES]
    assert [item["learning_rate"] for item in found] == RATES

    # 3. With imports of ours: no path is another one.
    monkeypatch.chdir(repository)
    # Our processes start with `python -P`; pytest has the folder of this checkout, with its own experiments, in front.
    others = [entry for entry in sys.path if entry not in ("", str(REPOSITORY))]
    monkeypatch.setattr(sys, "path", [*others, str(REPOSITORY)])
    assert main(["migrate", "experiments", "--write"]) == 0
    for file in repository.glob("experiments/*.py"):
        assert not re.search(r"^(from|import) (marin|fray|rigging)\b", file.read_text(), re.MULTILINE)
    steps = load_experiment("experiments/sweep.py", prefix=str(lab.prefix)).steps
    plan = prepare(steps, PlanSettings(prefix=str(lab.prefix), caller_path="experiments/sweep.py"))
    statuses = read_statuses([step.output_path for step in plan.steps])
    assert list(statuses.values()) == [Status.SUCCESS] * 6


def test_a_dry_run_runs_nothing(repository: Path, lab: Lab) -> None:
    """Although a script with a StepRunner reads no flags: whoever writes --dry_run wants to see, not to run."""
    ran = lab.python("-m", "marin_rules.compat", "-m", "experiments.wiki", "--dry_run", env={"MARIN_PREFIX": "out"})
    assert ran.code == 0
    assert "2 steps: 2 would run" in ran.output
    assert not lab.prefix.exists()
