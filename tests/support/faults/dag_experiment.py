"""An experiment of steps that read the blobs of other steps and write one, through fsspec. The test names its shape.

Executed by Snakemake's process as any experiment: it shares no code with the test that judges it.
"""

import hashlib
import json
import os
import time
from typing import Any

import fsspec

from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, versioned


def mix(config: dict[str, Any]) -> str:
    """A blob that depends on each byte of each input."""
    digest = hashlib.sha256(config["name"].encode())
    for path in config["inputs"]:
        with fsspec.open(os.path.join(path, "blob"), "rb") as file:
            digest.update(hashlib.sha256(file.read()).digest())
    gate = config["gate"]
    if gate is not None:
        open(gate + ".reached", "w").close()
        while not os.path.exists(gate):
            time.sleep(0.01)
    with fsspec.open(os.path.join(config["path"], "blob"), "wb") as file:
        file.write(digest.digest() * config["repeats"])
    return digest.hexdigest()


def steps(shape: dict[str, Any]) -> list[ExecutorStep[Any]]:
    made: list[ExecutorStep[Any]] = []
    for number, inputs in enumerate(shape["inputs"]):
        name = f"mix/{number}"
        config = {
            "name": versioned(name),
            "inputs": [made[index] for index in inputs],
            "path": THIS_OUTPUT_PATH,
            "repeats": shape["repeats"],
            "gate": shape["gates"].get(str(number)),
        }
        made.append(ExecutorStep(name=name, fn=mix, config=config))
    return made


if __name__ == "__main__":
    with open(os.environ["FAULTS_SHAPE"]) as file:
        executor_main(steps=steps(json.load(file)))
