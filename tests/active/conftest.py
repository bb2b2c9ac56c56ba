"""A world of runs, workers and jobs for each test of this folder."""

from pathlib import Path

import pytest

from support.active_world import ActiveWorld


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ActiveWorld:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return ActiveWorld(tmp_path)
