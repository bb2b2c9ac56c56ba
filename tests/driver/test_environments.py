"""Which Python environment a step runs in, where it is, and what is built before the first job starts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from marin_rules.driver import environments
from marin_rules.driver.environments import SoftwareFolder
from marin_rules.plans.frozen import FrozenPlan, FrozenStep

PLAN = cast(FrozenPlan, SimpleNamespace(software=[SimpleNamespace(name=f"env-{number}") for number in range(3)]))


def step(software: int | None, conda_file: str | None = None) -> FrozenStep:
    return cast(FrozenStep, SimpleNamespace(software=software, conda_file=conda_file))


@pytest.mark.parametrize(
    ("deploys_conda", "of_step", "position"),
    [
        (False, step(1), 1),
        (False, step(None), None),
        (True, step(1), 1),
        (True, step(1, "envs/x.yaml"), None),
        # Without --sdm conda nobody makes what the file asks for.
        (False, step(1, "envs/x.yaml"), 1),
    ],
)
def test_a_step_has_the_environment_of_conda_only_where_conda_deploys(
    deploys_conda: bool, of_step: FrozenStep, position: int | None
) -> None:
    assert SoftwareFolder(PLAN, deploys_conda=deploys_conda).position(of_step) == position


def test_environments_are_where_the_cluster_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARIN_ENVIRONMENTS", raising=False)
    folder = SoftwareFolder(PLAN, deploys_conda=False)
    folder.shared = "/shared/environments"
    assert folder.python(2) == "/shared/environments/env-2/bin/python"


def test_each_environment_that_a_step_needs_is_ensured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[tuple[str, str]] = []

    def ensure(environment: Any, folder: str, say: Callable[[str], None], circle: Any) -> None:
        built.append((environment.name, folder))

    monkeypatch.delenv("MARIN_ENVIRONMENTS", raising=False)
    monkeypatch.setattr(environments, "ensure_environment", ensure)
    folder = SoftwareFolder(PLAN, deploys_conda=True)
    folder.shared = "/shared"
    folder.ensure([step(2), step(0), step(None), step(2), step(1, "envs/x.yaml")], lambda text: None)
    assert built == [("env-0", "/shared"), ("env-2", "/shared")]


def test_only_a_missing_environment_needs_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARIN_ENVIRONMENTS", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    folder = SoftwareFolder(PLAN, deploys_conda=False)
    folder.shared = str(tmp_path)
    built = Path(folder.python(1))
    built.parent.mkdir(parents=True)
    built.touch()
    assert folder.obstacle(step(None)) is None
    assert folder.obstacle(step(1)) is None
    assert "pip install uv" in (folder.obstacle(step(0)) or "")
    uv = tmp_path / "programs" / "uv"
    uv.parent.mkdir()
    uv.touch(mode=0o755)
    assert folder.obstacle(step(0)) is None
