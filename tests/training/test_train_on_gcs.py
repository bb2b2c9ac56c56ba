"""The whole way from text to an evaluated model with a prefix in a bucket, and a kill on the way."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.emulators.gcs.emulator import GcsEmulator
from support.lab import REPOSITORY, Lab
from training.outputs import metrics

EXPERIMENT = """
import sys
from dataclasses import asdict, replace

sys.path.insert(0, {tests!r})
from training.training_runs import MODEL, hyperparameters

from experiments.defaults import default_eval, default_tokenize, default_train, default_train_tokenizer
from experiments.simple_train_config import SimpleTrainConfig
from marin_rules import ResourceConfig, executor_main

text, held = {text!r}, {held!r}
tokenizer = default_train_tokenizer("words", text, 288)
tokens = default_tokenize("words", text, tokenizer)
held_tokens = default_tokenize("held", held, tokenizer, is_validation=True)
given = SimpleTrainConfig(ResourceConfig.with_cpu(cpu=2, ram="1500m"), **asdict(hyperparameters()))
model = default_train("words", tokens, MODEL, given, validation_sets={{"held": held_tokens}})
few = replace(given, num_train_steps=2, warmup=0, initialize_from_hf=model, tensorboard=True)
again = default_train("again", tokens, None, few)
scores = default_eval(again, held_out={{"held": held}}, offline=True)

if __name__ == "__main__":
    executor_main(steps=[scores])
"""


def test_a_model_is_trained_resumed_begun_with_and_evaluated_in_a_bucket(
    training_lab: Lab, gcs: GcsEmulator, trained: Path, tmp_path: Path
) -> None:
    gcs.create_bucket("bucket")
    lab = training_lab
    lab.environment["PYTHONPATH"] = str(REPOSITORY)
    # Levanter reads and writes arrays with tensorstore, which has its own idea of where Google is.
    lab.environment |= {
        **gcs.environment,
        "TENSORSTORE_GCS_HTTP_URL": gcs.url,
        "GOOGLE_AUTH_TOKEN_FOR_TESTING": "emulated",
    }
    places = {"tests": str(REPOSITORY / "tests"), "text": str(trained / "documents"), "held": str(trained / "held")}
    file = lab.experiment(EXPERIMENT.format(**places))
    run = lab.start_snakemake(experiment=file, prefix="gs://bucket/out")
    run.wait_for(lambda: "step 41/80: checkpoint" in run.output, "the second checkpoint", timeout=600)
    run.kill_everything()
    last = lab.snakemake(experiment=file, prefix="gs://bucket/out", timeout=600)
    assert last.code == 0, last.output
    assert re.findall(r"resumes after step (\d+)", last.output) == ["41"]

    lines = of_step(gcs, "checkpoints/words", "metrics.jsonl").splitlines()
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(lines))
    for name in ("train/loss", "eval/loss"):
        assert metrics(tmp_path, name) == metrics(trained / "whole", name), "each step is there once"
    first = json.loads(of_step(gcs, "checkpoints/again", "metrics.jsonl").splitlines()[0])["train/loss"]
    assert first == pytest.approx(metrics(tmp_path)[-1][1], abs=0.15), "it begins with what the other has learnt"
    assert of_step(gcs, "checkpoints/again", r"tensorboard/run/events\.[^/]+").count(b"train/loss") == 2 + 1  # The end.
    results = json.loads(of_step(gcs, "evaluation/checkpoints/again", "results.json"))
    assert results["held_out"]["held"]["bits_per_byte"]["value"] < 0.3


def of_step(gcs: GcsEmulator, name: str, file: str) -> bytes:
    """A file of a step's output."""
    (found,) = [one for one in gcs.names("bucket", f"out/{name}-") if re.fullmatch(f"out/{name}-[^/]+/{file}", one)]
    content = gcs.get("bucket", found)
    assert content is not None
    return content
