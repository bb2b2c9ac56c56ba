"""The tutorial from pages to an evaluated model: whole by `make smoke`, and with few steps in `make test`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from support.lab import REPOSITORY, Lab
from training.outputs import facts, metrics

QUICKSTART = REPOSITORY / "experiments" / "tutorials" / "quickstart.py"
FEWER = {
    "import dataclass\n": "import dataclass, replace\n",
    "    llama_tutorial,\n": "    replace(llama_tutorial, hidden_dim=64, num_layers=2),\n",
    "learning_rate=3e-3": "learning_rate=1e-2",
    "num_train_steps=450": "num_train_steps=60",
    "steps_per_eval=150": "steps_per_eval=60",
    "num_train_steps=150": "num_train_steps=20",
    "steps_per_eval=50": "steps_per_eval=10",
    'addresses / "held_out")': 'addresses / "held_out", items=20)',
}


def run(lab: Lab, file: Path, *, timeout: float) -> None:
    """To its end, and to the report of it."""
    lab.environment["PYTHONPATH"] = str(REPOSITORY)
    result = lab.snakemake(experiment=file, timeout=timeout)
    assert result.code == 0, result.output
    report = lab.snakemake("--report", "report.html", experiment=file)
    assert report.code == 0, report.output


def results(lab: Lab, model: str) -> dict[tuple[str, str], dict[str, str]]:
    """The rows of an evaluation's table, by set or task and metric."""
    with (lab.folder_of(f"evaluation/checkpoints/{model}") / "report" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {(row["name"], row["metric"]): row for row in rows}


def pages(lab: Lab) -> dict[str, str]:
    """The pages of the report, by the steps that they are of."""
    folder = lab.folder / ".snakemake" / "marin-rules" / "report"
    texts = [path.read_text() for path in folder.glob("step-*.html")]
    return {text.partition("<h1>")[2].partition("</h1>")[0]: text for text in texts}


def check_outcome(lab: Lab) -> dict[str, Any]:
    """What must be true however many steps there are; returns the bits per byte of the model and of n-gram models."""
    found = facts(lab.folder_of("checkpoints/quickstart"))
    bits = {name: values["bits_per_byte"] for name, values in found["compared"].items()}
    assert bits["model"] < bits["unigram"]
    mixed = json.loads((lab.folder_of("mixtures/quickstart") / "mixture.json").read_text())
    assert {name for name, one in mixed["components"].items() if one["tokens"]} == {"addresses", "manual"}
    answers = [loss for _, loss in metrics(lab.folder_of("checkpoints/quickstart-chat"), "eval/answers/loss")]
    assert answers[-1] < answers[0]
    for model in ("quickstart", "quickstart-chat"):
        rows = results(lab, model)
        assert {name for name, _ in rows} == {"addresses", "word_order", "sentence_endings", "twice"}
        for row in rows.values():
            assert row["chance"], row
            assert row["standard_error"], row
    shown = pages(lab)
    assert "data:image/svg+xml" in shown["checkpoints/quickstart"]
    assert "trigram" in shown["checkpoints/quickstart"]
    assert "exact_match" in shown["evaluation/checkpoints/quickstart-chat"]
    assert "Q: " in shown["evaluation/checkpoints/quickstart-chat"], "samples"
    assert "data:image/svg+xml" in shown["quickstart/comparison"]
    return bits


def test_from_pages_to_an_evaluated_model(training_lab: Lab) -> None:
    source = QUICKSTART.read_text()
    for full, fewer in FEWER.items():
        assert full in source
        source = source.replace(full, fewer)
    run(training_lab, training_lab.experiment(source), timeout=600)
    check_outcome(training_lab)


@pytest.mark.smoke
def test_at_its_full_length(training_lab: Lab) -> None:
    run(training_lab, QUICKSTART, timeout=1800)
    bits = check_outcome(training_lab)
    assert bits["model"] < bits["bigram"] < bits["unigram"]
    before, after = results(training_lab, "quickstart"), results(training_lab, "quickstart-chat")
    answered = ("twice", "exact_match")
    assert float(before[answered]["score"]) < 0.1
    assert float(after[answered]["score"]) > 0.6
    control = ("addresses", "bits_per_byte")
    assert float(after[control]["score"]) < 1.05 * float(before[control]["score"])
