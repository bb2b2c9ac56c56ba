"""What several tests of environments need."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marin_rules.software.environment import Environment
from software.builders import BuilderProcess, Gate


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where environments go."""
    return tmp_path / "environments"


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv has never built anything."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


@pytest.fixture
def builder(folder: Path, tmp_path: Path) -> Iterator[Callable[[Environment], BuilderProcess]]:
    """`builder(environment)` starts a process that wants it; what still runs in the end is killed."""
    started: list[BuilderProcess] = []

    def start(environment: Environment) -> BuilderProcess:
        started.append(BuilderProcess(environment, folder, tmp_path / f"builder-{len(started)}.log"))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.signal(signal.SIGKILL)
            one.wait()
