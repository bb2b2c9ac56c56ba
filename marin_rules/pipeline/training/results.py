"""What a finished run leaves: whole exports, `training.json`, and the files of the report."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from marin_rules.pipeline.core.files import join, remove_file, write_json
from marin_rules.pipeline.core.tokenizer_files import copy_tokenizer
from marin_rules.pipeline.training.config import Hyperparameters
from marin_rules.pipeline.training.errors import TrainingError
from marin_rules.pipeline.training.export import check_export, remove_cut_exports
from marin_rules.pipeline.training.metrics import Recorder
from marin_rules.pipeline.training.model import LlamaConfig
from marin_rules.pipeline.training.report import write_baselines, write_loss_curve
from marin_rules.pipeline.training.run import Devices


def conclude(
    output: str,
    given: Hyperparameters,
    model: LlamaConfig,
    vocabulary: int,
    tokenizer: str,
    recorder: Recorder,
    devices: Devices,
    *,
    compared: Mapping[str, Mapping[str, float]],
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """Check the results, and write what is reported about them."""
    last = given.num_train_steps - 1
    trained = [line for line in recorder.lines if "train/loss" in line]
    if recorder.last_step != last:
        reached = recorder.last_step + 1
        raise TrainingError(f"training ended after {reached} of {given.num_train_steps} steps: the data ran out")
    exports = _finish_exports(join(output, "hf"), f"step-{last}", tokenizer)
    remove_file(join(output, "checkpoints", "eval_metrics.jsonl"))  # Levanter's; resumed runs repeat themselves in it.
    evaluated = [line for line in recorder.lines if any(name.startswith("eval/") for name in line)]
    seconds = [line["seconds"] for line in trained if "seconds" in line]
    work = recorder.work
    facts = {
        "steps": given.num_train_steps,
        "tokens": work.tokens(last),
        "parameters": work.parameters,
        "flops": work.flops(last),
        "train_loss": next((line["train/loss"] for line in trained if line["step"] == last), None),
        "steps_without_line": len(recorder.steps_without_line()),
        "evaluation": _evaluation(evaluated[-1]) if evaluated else {},
        "compared": {name: dict(values) for name, values in compared.items()},
        "seconds": sum(seconds),
        **(work.speed(statistics.median(seconds)) if seconds else {}),
        "device": asdict(devices),
        "checkpoint": f"checkpoints/step-{last}",
        "export": f"hf/step-{last}",
        "exports": [f"hf/{name}" for name in exports],
        "model": {"config": asdict(model), "sha256": digest(asdict(model)), "vocabulary": vocabulary},
        "hyperparameters": asdict(given),
        **more,
    }
    report = join(output, "report")
    write_loss_curve(report, recorder.lines)
    if compared:
        write_baselines(report, compared)
        others = ", ".join(f"{name} {values['bits_per_byte']:.4f}" for name, values in compared.items())
        print(f"bits per byte of held-out text: {others}", flush=True)
    write_json(join(output, "training.json"), facts)
    return facts


def _finish_exports(folder: str, last: str, tokenizer: str) -> list[str]:
    """Each with the tokenizer of the data, file by file: saving a tokenizer again would change its digest."""
    exports = remove_cut_exports(folder)
    for name in exports:
        copy_tokenizer(tokenizer, join(folder, name))
    check_export(join(folder, last))
    return exports


def _evaluation(line: Mapping[str, Any]) -> dict[str, float]:
    """Without how long it took. A set may be called `nytimes`."""
    return {name: value for name, value in line.items() if name.startswith("eval/") and not name.endswith("_time")}


def digest(value: Any) -> str:
    """Of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
