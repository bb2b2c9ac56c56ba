"""A fake cluster for each test, and a driver that has a job there."""

from pathlib import Path

import pytest

from support.fake_cluster import ClusterWorld, Driver


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterWorld:
    return ClusterWorld(tmp_path, monkeypatch)


@pytest.fixture
def driver(world: ClusterWorld) -> Driver:
    """With a job of the step `model` in the queue, its id 1."""
    driver = world.driver("model")
    driver.submit("model")
    driver.said.clear()
    return driver
