"""Steps that do nothing and may run elsewhere: for each, `steps.json` beside this file has the groups it names."""

import json
from dataclasses import dataclass
from pathlib import Path

from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, ResourceConfig, executor_main, remote, versioned
from marin_rules.placeholders import VersionedValue


@dataclass(frozen=True)
class NothingConfig:
    """One value that counts, and a place to write."""

    number: VersionedValue[int]
    output_path: str = THIS_OUTPUT_PATH


def do_nothing(config: NothingConfig) -> None:
    """What is measured is all that happens around this."""


steps = [
    ExecutorStep(
        name=f"step/{number}",
        fn=remote(do_nothing, resources=ResourceConfig(ram="500m"), pip_dependency_groups=groups),
        config=NothingConfig(versioned(number)),
    )
    for number, groups in enumerate(json.loads(Path(__file__).with_name("steps.json").read_text()))
]

if __name__ == "__main__":
    executor_main(steps=steps)
