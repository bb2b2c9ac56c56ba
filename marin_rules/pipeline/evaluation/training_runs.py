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
        raise DataError(f"run {name!r}: {where} does not exist or is not JSON. Has the training step succeeded?")
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
                raise DataError(f"run {name!r}: line {number} of {where} is not JSON") from None
    return lines


def _run(name: str, path: str, metric: str, facts: Mapping[str, Any]) -> TrainingRun:
    """With the last value of a metric as the loss."""
    lines, where = read_lines(name, path), join(path, "metrics.jsonl")
    measured = [line for line in lines if metric in line]
    if not measured:
        raise DataError(f"run {name!r}: {where} has no {metric!r}: did the training have a held-out set?")
    loss, step = measured[-1][metric], measured[-1].get("step", 0)
    end = max((line.get("step", 0) for line in lines if "train/loss" in line), default=step)
    if step < end:
        raise DataError(
            f"run {name!r}: the last {metric!r} in {where} is of step {step}, but the model was trained until step"
            f" {end}: it is not the loss at the run's full cost. Evaluate it at its end"
        )
    if not isinstance(loss, int | float) or not math.isfinite(loss) or loss <= 0:
        raise DataError(f"run {name!r}: its last {metric!r} is {loss!r}, no loss above 0")
    return TrainingRun(name, int(facts["parameters"]), int(facts["tokens"]), float(facts["flops"]), float(loss))


def read_runs(paths: Mapping[str, str], metric: str) -> list[TrainingRun]:
    """Of trainings whose losses can be compared."""
    facts = {name: read_facts(name, path) for name, path in paths.items()}
    runs = [_run(name, path, metric, facts[name]) for name, path in paths.items()]
    data = {name: one.get("data") or {} for name, one in facts.items()}
    tokenizers = {name: one.get("tokenizer_sha256") for name, one in data.items()}
    if not metric.endswith("bpb"):  # Which is per byte, and not per token.
        _refuse_others("tokenizers", metric, tokenizers)
    # Digests are of tokens: those of two tokenizers say nothing of the text.
    for tokenizer in dict.fromkeys(tokenizers.values()):
        alike = [name for name in data if tokenizers[name] == tokenizer]
        _refuse_others("held-out texts", metric, {name: _held_out(data[name], metric) for name in alike})
    return runs


def _refuse_others(what: str, metric: str, by_run: Mapping[str, Any]) -> None:
    """Of what is known."""
    known = {name: value for name, value in by_run.items() if value}
    first = next(iter(known), "")
    if others := [name for name in known if known[name] != known[first]]:
        raise DataError(
            f"the runs {first!r} and {others[0]!r} have different {what}, so that their {metric!r} cannot be compared:"
            " use runs with the same"
        )


def _held_out(data: Mapping[str, Any], metric: str) -> Any:
    """Digests of the sets that an evaluation is of: of one of them, or of all together."""
    digests = {
        name: (one.get("sha256") or {}).get("validation") for name, one in (data.get("components") or {}).items()
    }
    kind, *names = metric.split("/")
    if kind != "eval":
        return None
    if len(names) > 1:
        return digests.get(names[0])
    return sorted(digest for digest in digests.values() if digest)
