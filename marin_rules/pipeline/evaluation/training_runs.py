"""What a training step left about itself: `training.json` and `metrics.jsonl`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import join, open_to_read, read_json


@dataclass(frozen=True)
class TrainingRun:
    """One training, as scaling laws and speedruns see it."""

    name: str
    parameters: int
    tokens: int
    flops: float
    loss: float


def read_facts(name: str, path: str) -> dict[str, Any]:
    """`training.json`, with the numbers that every use of it needs."""
    where = join(path, "training.json")
    facts = read_json(where)
    if not isinstance(facts, dict):
        raise DataError(f"run {name!r}: {where} does not exist or is no JSON. Has the training step succeeded?")
    for key in ("steps", "parameters", "tokens", "flops"):
        value = facts.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise DataError(f"run {name!r}: {where} has {value!r} as its {key}, which should be a number above 0")
    return facts


def read_lines(name: str, path: str) -> list[dict[str, Any]]:
    """`metrics.jsonl`; a last line that was cut is left out."""
    where = join(path, "metrics.jsonl")
    try:
        with open_to_read(where) as file:
            texts = file.read().decode().splitlines()
    except FileNotFoundError:
        raise DataError(f"run {name!r}: {where} does not exist. Has the training step succeeded?") from None
    lines = []
    for number, text in enumerate(texts, 1):
        try:
            lines.append(json.loads(text))
        except ValueError:
            if number < len(texts):
                raise DataError(f"run {name!r}: line {number} of {where} is no JSON") from None
    return lines


def read_run(name: str, path: str, metric: str) -> TrainingRun:
    """With the last value of a metric as the loss."""
    facts, lines, where = read_facts(name, path), read_lines(name, path), join(path, "metrics.jsonl")
    measured = [line for line in lines if metric in line]
    if not measured:
        raise DataError(f"run {name!r}: {where} has no {metric!r}: did the training have a held-out set?")
    loss, step = measured[-1][metric], measured[-1].get("step", 0)
    end = max((line.get("step", 0) for line in lines if "train/loss" in line), default=step)
    if step < end:
        raise DataError(
            f"run {name!r}: the last {metric!r} in {where} is of step {step}, but the model was trained until step"
            f" {end}: it is no loss of what the run cost. Evaluate it at its end"
        )
    if not isinstance(loss, int | float) or not math.isfinite(loss) or loss <= 0:
        raise DataError(f"run {name!r}: its last {metric!r} is {loss!r}, no loss above 0")
    return TrainingRun(name, int(facts["parameters"]), int(facts["tokens"]), float(facts["flops"]), float(loss))


def read_runs(paths: Mapping[str, str], metric: str) -> list[TrainingRun]:
    return [read_run(name, path, metric) for name, path in paths.items()]
