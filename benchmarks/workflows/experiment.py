"""Our side of each comparison: the `dag.json` beside this file as an experiment of steps that do nothing."""

import json
from dataclasses import dataclass
from pathlib import Path

from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, InputName, executor_main, output_path_of, versioned
from marin_rules.placeholders import VersionedValue


@dataclass(frozen=True)
class NothingConfig:
    """One value that counts, references to other steps, and a place to write."""

    version: VersionedValue[int]
    sources: list[InputName]
    output_path: str = THIS_OUTPUT_PATH


def do_nothing(config: NothingConfig) -> None:
    """What is measured is all that happens around this."""


dag = json.loads(Path(__file__).with_name("dag.json").read_text())
steps: list[ExecutorStep[NothingConfig]] = []
for number, (version, sources) in enumerate(zip(dag["versions"], dag["sources"], strict=True)):
    config = NothingConfig(versioned(version), [output_path_of(steps[source]) for source in sources])
    steps.append(ExecutorStep(name=f"step/{number}", fn=do_nothing, config=config))

if __name__ == "__main__":
    executor_main(steps=steps)
