"""`materialize`: the steps behind a config are run, once, and their paths put in their places."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, materialize, this_output_path, versioned


@dataclass(frozen=True)
class SourceConfig:
    counter: str
    number: int
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class LaunchConfig:
    data: str
    number: int
    log: str
    output_path: str


def write_number(config: SourceConfig) -> None:
    with open(config.counter, "a") as file:
        file.write("run\n")
    Path(config.output_path, "number").write_text(str(config.number))


@pytest.mark.processes
def test_two_threads_run_upstream_steps_once(tmp_path: Path) -> None:
    counter, prefix = tmp_path / "counter", str(tmp_path / "out")
    source = ExecutorStep("source", write_number, SourceConfig(str(counter), versioned(7)))
    config = LaunchConfig(source / "number", versioned(3), this_output_path("log"), f"{prefix}/launch")

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: materialize(config, prefix=prefix), range(2))

    assert counter.read_text() == "run\n"
    assert first == second == LaunchConfig(first.data, 3, f"{prefix}/launch/log", f"{prefix}/launch")
    assert first.data.startswith(f"{prefix}/source-")
    assert Path(first.data).read_text() == "7"
