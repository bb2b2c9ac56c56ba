"""A step that is divided into tasks that do nothing: `tasks.json` beside this file says into how many."""

import json
from dataclasses import dataclass
from pathlib import Path

from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, ResourceConfig, executor_main, remote


@dataclass(frozen=True)
class NothingConfig:
    """A place to write."""

    output_path: str = THIS_OUTPUT_PATH


def do_nothing(config: NothingConfig) -> None:
    """What is measured is all that happens around this."""


tasks = json.loads(Path(__file__).with_name("tasks.json").read_text())
step = ExecutorStep(
    name="tasks",
    fn=remote(do_nothing, tasks=tasks, resources=ResourceConfig.with_cpu(cpu=1, ram="100m")),
    config=NothingConfig(),
)

if __name__ == "__main__":
    executor_main(steps=[step])
