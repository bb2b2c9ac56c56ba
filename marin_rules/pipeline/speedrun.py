"""Speedruns: what a model cost and what it reached, as records that are checked, and a leaderboard of them.

    <output>/record.json                         of `record_speedrun`: one training and its evaluation
    <output>/index.html, records.json            of `leaderboard`: all records, the best first
    <output>/report/leaderboard.csv

A record is worth what its numbers are worth, so each is compared with the files that it comes from: with the metrics of
the training, with the model that was evaluated, and with what such a training must cost. A leaderboard reads these
files again, and refuses a record that no longer agrees with them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, join, open_to_read, read_json, write_json
from marin_rules.pipeline.evaluation.held_out import items_digest
from marin_rules.pipeline.evaluation.leaderboard_page import page
from marin_rules.pipeline.evaluation.samples import read_samples
from marin_rules.pipeline.evaluation.tables import signed, signed_chance, write_csv
from marin_rules.pipeline.evaluation.training_runs import read_facts, read_lines

COLUMNS = (
    *("rank", "name", "author", "bits_per_byte", "standard_error", "chance", "chance_standard_error", "flops"),
    *("seconds", "device", "parameters", "tokens", "code", "recipe_sha256", "data_sha256", "description"),
)

_FORMULA = 4.0
"""By which factor the FLOPs of a training may differ from 6 N D: tables of embeddings cost less, long contexts more."""

_ROUNDING = 1e-6


@dataclass(frozen=True)
class SpeedrunConfig:
    """One training and its evaluation, as a record."""

    name: str
    training_path: str | InputName
    evaluation_path: str | InputName
    set_name: str
    """The held-out set whose bits per byte count."""

    author: str = ""
    description: str = ""
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class LeaderboardConfig:
    """Records side by side. All must be of the same held-out set."""

    records: Mapping[str, str | InputName]
    """Outputs of `record_speedrun`, by name."""

    title: str = "Speedruns"
    output_path: str = THIS_OUTPUT_PATH


def record_speedrun(config: SpeedrunConfig) -> dict[str, Any]:
    """Check a training and its evaluation, and write the record."""
    record = {
        "name": config.name,
        "author": config.author,
        "description": config.description,
        "training_path": str(config.training_path),
        "evaluation_path": str(config.evaluation_path),
        "set": config.set_name,
        **measured(config.name, str(config.training_path), str(config.evaluation_path), config.set_name),
    }
    write_json(join(config.output_path, "record.json"), record)
    return record


def measured(name: str, training_path: str, evaluation_path: str, set_name: str) -> dict[str, Any]:
    """The numbers of a record, from the files that a training and an evaluation left; those that disagree are named."""
    facts = read_facts(name, training_path)
    _check_training(name, training_path, facts)
    results = read_json(join(evaluation_path, "results.json"))
    if not isinstance(results, dict) or set_name not in results.get("held_out", {}):
        raise DataError(f"speedrun {name!r}: {evaluation_path} has no results for the held-out set {set_name!r}")
    _check_evaluation(name, training_path, facts, results)
    found = results["held_out"][set_name]
    if lost := found.get("changed_documents"):
        raise DataError(
            f"speedrun {name!r}: the model's tokenizer loses something of {lost} documents of {set_name!r}, so that its"
            " bits per byte are too low to be ranked: use a tokenizer that keeps every byte"
        )
    _check_samples(name, evaluation_path, set_name, found)
    info = read_json(join(training_path, ".executor_info")) or {}
    return {
        "parameters": facts["parameters"],
        "tokens": facts["tokens"],
        "flops": facts["flops"],
        "seconds": facts["seconds"],
        "device": _device(facts.get("device")),
        "steps": facts["steps"],
        "bits_per_byte": found["bits_per_byte"]["value"],
        "standard_error": found["bits_per_byte"]["standard_error"],
        "chance": found["chance"]["bits_per_byte"]["value"],
        "chance_standard_error": found["chance"]["bits_per_byte"]["standard_error"],
        "items_sha256": found["items_sha256"],
        "code": (info.get("run") or {}).get("git_commit"),
        "recipe_sha256": _digest_of_json([facts.get("model"), facts.get("hyperparameters")]),
        "data_sha256": _digest_of_data(facts.get("data")),
        "training_sha256": _digest_of_file(join(training_path, "training.json")),
        "results_sha256": _digest_of_file(join(evaluation_path, "results.json")),
    }


def leaderboard(config: LeaderboardConfig) -> dict[str, Any]:
    """Check all records, and write the page."""
    check_leaderboard(config)
    records = [_checked(name, str(path)) for name, path in config.records.items()]
    if len({record["items_sha256"] for record in records}) > 1:
        sets = ", ".join(f"{record['name']}: {record['set']}" for record in records)
        raise DataError(f"the records are of different documents, which cannot be ranked ({sets})")
    records.sort(key=lambda record: (record["bits_per_byte"], record["flops"], record["name"]))
    rows = [{**record, "rank": rank} for rank, record in enumerate(records, 1)]
    write_csv(join(config.output_path, "report", "leaderboard.csv"), COLUMNS, rows)
    with into_place(join(config.output_path, "index.html")) as file:
        file.write(page(config.title, rows).encode())
    write_json(join(config.output_path, "records.json"), rows)
    for row in rows:
        score = signed(row["bits_per_byte"], row["standard_error"])
        cost = f"{row['flops']:.3g} FLOPs, {row['seconds']:.4g} s on {row['device']}"
        chance = signed_chance(row["chance"], row["chance_standard_error"])
        print(f"{row['rank']}. {row['name']}: {score} bits per byte ({chance}), {cost}", flush=True)
    print(f"the page: {join(config.output_path, 'index.html')}", flush=True)
    return {"records": len(rows), "first": rows[0]["name"]}


def check_leaderboard(config: LeaderboardConfig) -> None:
    if not config.records:
        raise DataError("a leaderboard needs at least one record")


def _check_training(name: str, path: str, facts: Mapping[str, Any]) -> None:
    refuse_other_weights(name, facts.get("began_with"))
    lines = [line for line in read_lines(name, path) if "tokens" in line and "train/loss" in line]
    if not lines:
        raise DataError(f"speedrun {name!r}: {join(path, 'metrics.jsonl')} has no steps with their tokens")
    last = lines[-1]
    for key in ("tokens", "flops"):
        if key in last and not math.isclose(last[key], facts[key], rel_tol=_ROUNDING):
            raise DataError(
                f"speedrun {name!r}: training.json says {facts[key]:.6g} {key}, but its last step in metrics.jsonl"
                f" {last[key]:.6g}"
            )
    if len(lines) != facts["steps"]:
        raise DataError(
            f"speedrun {name!r}: training.json says {facts['steps']} steps, but metrics.jsonl has {len(lines)}"
        )
    formula = 6.0 * facts["parameters"] * facts["tokens"]
    if not 1 / _FORMULA <= facts["flops"] / formula <= _FORMULA:
        raise DataError(
            f"speedrun {name!r}: {facts['flops']:.3g} FLOPs cannot be right for {facts['parameters']:,} parameters and"
            f" {facts['tokens']:,} tokens, whose training costs about {formula:.3g} (6 N D)"
        )
    stepping = sum(line.get("seconds", 0.0) for line in lines)
    if not isinstance(facts.get("seconds"), int | float) or facts["seconds"] < stepping * (1 - 1e-3):
        raise DataError(
            f"speedrun {name!r}: training.json says {facts.get('seconds')} seconds, but its steps took {stepping:.6g}"
        )


def _check_evaluation(name: str, training_path: str, facts: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    model = results["model"]
    if not str(model["path"]).startswith(training_path.rstrip("/") + "/"):
        raise DataError(f"speedrun {name!r}: the evaluation is of {model['path']}, not a model of {training_path}")
    if model["parameters"] != facts["parameters"]:
        raise DataError(
            f"speedrun {name!r}: the model that was evaluated has {model['parameters']:,} parameters, the one that was"
            f" trained {facts['parameters']:,}"
        )
    refuse_other_settings(name, results["settings"])


def refuse_other_weights(name: str, weights: str | InputName | None) -> None:
    """A training is cheap if another has done the work."""
    if weights is not None:
        place = weights.step.name if isinstance(weights, InputName) and weights.step is not None else weights
        raise DataError(
            f"speedrun {name!r}: its training began with the weights of {place}, whose cost is not counted: record"
            " one that begins with random weights"
        )


def refuse_other_settings(name: str, settings: Mapping[str, Any]) -> None:
    """Settings that would make a score better, or another set of it."""
    if most := settings.get("max_documents"):
        raise DataError(
            f"speedrun {name!r}: the evaluation saw a part of the set only (max_documents {most}): evaluate all of it"
        )
    if overlap := settings.get("overlap"):
        raise DataError(
            f"speedrun {name!r}: the evaluation gave each window more context than others do (overlap {overlap}):"
            " evaluate without"
        )


def _check_samples(name: str, evaluation_path: str, set_name: str, found: Mapping[str, Any]) -> None:
    """The score and the digest are those of the documents, as they were scored one by one."""
    rows = read_samples(f"speedrun {name!r}", evaluation_path, f"held_out-{set_name}")
    size = sum(row["bytes"] for row in rows)
    bits = -sum(row["log_probability"] for row in rows) / math.log(2)
    stated = found["bits_per_byte"]["value"]
    if not isinstance(stated, int | float) or size <= 0 or not math.isclose(stated, bits / size, rel_tol=_ROUNDING):
        raise DataError(
            f"speedrun {name!r}: results.json says {stated!r} bits per byte of {set_name!r}, but its samples"
            f" {bits / max(size, 1):.6g}"
        )
    if found["items_sha256"] != items_digest([(row["id"], row["sha256"]) for row in rows]):
        raise DataError(f"speedrun {name!r}: results.json and the samples of {set_name!r} are of different documents")


def _checked(name: str, path: str) -> dict[str, Any]:
    """A record whose numbers are still those of its files."""
    record = read_json(join(path, "record.json"))
    if not isinstance(record, dict):
        raise DataError(f"record {name!r}: {join(path, 'record.json')} does not exist. Has its step succeeded?")
    for key in ("name", "training_path", "evaluation_path", "set"):
        if not isinstance(record.get(key), str):
            raise DataError(f"record {name!r}: {join(path, 'record.json')} has no {key}: make the record again")
    now = measured(record["name"], record["training_path"], record["evaluation_path"], record["set"])
    for key, value in now.items():
        if key in record and record[key] != value:
            raise DataError(
                f"record {name!r}: it says {key} {record.get(key)!r}, but its training and evaluation {value!r}"
            )
    return {**record, **now}


def _device(facts: Any) -> str:
    """`8 x TPU v4`."""
    if not isinstance(facts, dict):
        return str(facts or "unknown")
    return f"{facts.get('count', '?')} x {facts.get('kind', '?')}"


def _digest_of_file(path: str) -> str:
    with open_to_read(path) as file:
        return hashlib.sha256(file.read()).hexdigest()


def _digest_of_data(facts: Any) -> str:
    """As the training says, which does not depend on where the data lies."""
    stated = facts.get("sha256") if isinstance(facts, dict) else None
    return stated if isinstance(stated, str) else _digest_of_json(facts)


def _digest_of_json(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
