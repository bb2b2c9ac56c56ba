"""Classifiers of fastText, trained and used for real, in the environment that steps get for it."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.processes

REPOSITORY = Path(__file__).parents[2]
NOVEL = REPOSITORY / "tests" / "data" / "moby_dick"

PROGRAM = """
import json, sys
from marin_rules.pipeline.classify import ClassifyConfig, FasttextClassifier, classify
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.train_classifier import LabelledDocuments, TrainClassifierConfig, train_classifier

for stage, settings in json.load(sys.stdin):
    try:
        if stage == "train":
            datasets = [LabelledDocuments(*one) for one in settings.pop("datasets")]
            train_classifier(TrainClassifierConfig(datasets, **settings))
        else:
            classifier = FasttextClassifier(settings.pop("model_path"))
            classify(ClassifyConfig(classifier=classifier, **settings))
    except DataError as error:
        print("refused:", error)
"""

ARGUMENTS = {"epoch": 20, "lr": 0.5, "dim": 8, "bucket": 2000}


def run(python: Path, *stages: tuple[str, dict[str, Any]]) -> str:
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [str(python), "-c", PROGRAM], input=json.dumps(stages), text=True, capture_output=True, env=variables
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write(folder: Path, documents: Sequence[Mapping[str, Any]], shards: int) -> str:
    folder.mkdir(parents=True)
    for shard in range(shards):
        lines = [json.dumps(document) for document in documents[shard::shards]]
        (folder / f"{shard}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return str(folder)


def examples(label: str) -> list[dict[str, str]]:
    """Passages of a novel, or the same number of pages of navigation; with words that fastText would obey."""
    words = " ".join(path.read_text() for path in sorted(NOVEL.glob("*.txt"))).split()
    chance = random.Random(label)
    documents = []
    for number in range(300):
        start = chance.randrange(len(words) - 50)
        passage = words[start : start + 50]
        if label == "bad":
            passage = chance.choices(["Home", "Login", "Basket", "__label__third", *passage[:10]], k=50)
        passage.insert(chance.randrange(50), "</s>" if number % 3 else "\n__label__other\n")
        documents.append({"id": f"{label}-{number}", "text": " ".join(passage)})
    return documents


@pytest.fixture(scope="module")
def trained(fasttext_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same examples in one shard, and in three in another order, and what was made of them."""
    folder = tmp_path_factory.mktemp("classifier")
    settings = {"fasttext_args": ARGUMENTS, "seed": 5, "val_frac": 0.25}
    stages: list[tuple[str, dict[str, Any]]] = []
    for name, shards, step in (("one", 1, 1), ("three", 3, -1)):
        datasets = [[write(folder / name / label, examples(label)[::step], shards), label] for label in ("good", "bad")]
        stages.append(("train", {**settings, "datasets": datasets[::step], "output_path": str(folder / f"{name}-out")}))
    scored = {"input_path": str(folder / "three" / "good"), "model_path": str(folder / "one-out")}
    strange = [{"id": "empty", "text": ""}, {"id": "lines", "text": "Call me\r\n\x00Ishmael\u2028"}]
    strange += [{"id": "whale", "text": "\U0001f40b" * 1000}, {"id": "label", "text": "__label__good"}]
    odd = {"input_path": write(folder / "strange", strange, 1), "model_path": str(folder / "one-out" / "model.bin")}
    stages.append(("classify", {**scored, "output_path": str(folder / "scores")}))
    stages.append(("classify", {**odd, "output_path": str(folder / "strange-scores")}))
    assert "refused" not in run(fasttext_python, *stages)
    return folder


def scores(folder: Path) -> dict[str, dict[str, float]]:
    lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
    return {row["id"]: row["attributes"]["quality"] for row in map(json.loads, lines)}


@pytest.mark.parametrize("file", ["model.bin", "metrics.json", "report/calibration.csv", "report/calibration.svg"])
def test_neither_shards_nor_their_order_change_a_byte(file: str, trained: Path) -> None:
    assert (trained / "one-out" / file).read_bytes() == (trained / "three-out" / file).read_bytes()


def test_held_out_documents_are_told_apart(trained: Path) -> None:
    metrics = json.loads((trained / "one-out" / "metrics.json").read_text())
    held_out = metrics["validation"]
    assert metrics["training"]["documents"].keys() == {"good", "bad"}, "labels within texts are words"
    assert sum(metrics["training"]["documents"].values()) + held_out["documents"] == 600
    assert 110 < held_out["documents"] < 190
    assert held_out["accuracy"] > 0.95
    low, high = held_out["labels"]["good"]["auc_interval"]
    assert 0.95 < low <= held_out["labels"]["good"]["auc"] <= high <= 1
    assert metrics["reproducible"]
    assert metrics["model_bytes"] == (trained / "one-out" / "model.bin").stat().st_size < 2_000_000


def test_the_table_of_calibration_counts_each_document_once_a_label(trained: Path) -> None:
    rows = list(csv.DictReader(io.StringIO((trained / "one-out" / "report" / "calibration.csv").read_text())))
    metrics = json.loads((trained / "one-out" / "metrics.json").read_text())["validation"]
    for label in ("good", "bad"):
        mine = [row for row in rows if row["label"] == label]
        assert sum(int(row["documents"]) for row in mine) == metrics["documents"]
        errors = [int(row["documents"]) * abs(float(row["mean_score"]) - float(row["share"])) for row in mine]
        error = metrics["labels"][label]["expected_calibration_error"]
        assert sum(errors) / metrics["documents"] == pytest.approx(error, abs=1e-4)
    assert "<svg" in (trained / "one-out" / "report" / "calibration.svg").read_text()


def test_scores_are_probabilities_that_differ(trained: Path) -> None:
    found = scores(trained / "scores")
    assert len(found) == 300
    assert all(
        one.keys() == {"good", "bad"} and sum(one.values()) == pytest.approx(1, abs=1e-3) for one in found.values()
    )
    assert sum(one["good"] > 0.5 for one in found.values()) > 285
    assert len({one["good"] for one in found.values()}) > 50


def test_strange_texts_are_scored_like_any_others(trained: Path) -> None:
    found = scores(trained / "strange-scores")
    assert found.keys() == {"empty", "lines", "whale", "label"}
    assert all(0 <= score <= 1 for one in found.values() for score in one.values())


def test_equal_texts_are_never_on_both_sides(fasttext_python: Path, tmp_path: Path) -> None:
    """Each seed puts 40 equal texts (apart from white space) where it puts one of them."""
    copies = [{"id": str(number), "text": f"the{' ' * (number % 3 + 1)}same\ntext"} for number in range(40)]
    copies_path = write(tmp_path / "copies", copies, 2)
    others = [{"id": str(number), "text": f"text number {number}"} for number in range(40)]
    datasets = [[copies_path, "copies"], [write(tmp_path / "others", others, 1), "others"]]
    stages = [
        (
            "train",
            {
                "datasets": datasets,
                "fasttext_args": ARGUMENTS,
                "val_frac": 0.5,
                "seed": seed,
                "output_path": str(tmp_path / f"out-{seed}"),
            },
        )
        for seed in range(6)
    ]
    said = run(fasttext_python, *stages)
    trained_on = [
        json.loads(file.read_text())["training"]["documents"]["copies"] for file in tmp_path.glob("out-*/metrics.json")
    ]
    assert set(trained_on) == {40}
    assert len(trained_on) + said.count("no document of") == 6, "else all are held out, and nothing is left to train on"
    assert 0 < len(trained_on) < 6


def test_sampling_is_accounted_for(fasttext_python: Path, tmp_path: Path) -> None:
    datasets = [
        [write(tmp_path / "good", [*examples("good"), {"id": "empty", "text": " "}, {"id": "bad"}], 2), "good", 0.5],
        [write(tmp_path / "bad", examples("bad"), 1), "bad", 1.0],
    ]
    settings = {"datasets": datasets, "fasttext_args": ARGUMENTS, "val_frac": 0, "output_path": str(tmp_path / "out")}
    assert "refused" not in run(fasttext_python, ("train", settings))
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["rejected"] == {"no text": 1}
    assert summary["dropped"]["an empty text"] == 1
    assert 100 < summary["dropped"]["not in the sample"] < 200
    assert summary["read"] == 602 == summary["written"] + 1 + sum(summary["dropped"].values())
    (reject,) = (tmp_path / "out" / "rejects" / "documents.jsonl").read_text().splitlines()
    assert json.loads(reject)["reason"] == "no text"
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["validation"] is None
    assert not (tmp_path / "out" / "report").exists()
