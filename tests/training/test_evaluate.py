"""Evaluations of a tiny random model with Levanter and lm-eval, against the same model in numpy."""

from __future__ import annotations

import csv
import json
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy
import pytest

from support.tiny_llama import (
    BOS,
    EOS,
    LENGTH,
    VOCABULARY,
    log_probabilities,
    make_weights,
    score,
    tokens_of,
    write_model,
    write_tokenizer,
)

pytestmark = pytest.mark.processes

WEIGHTS = make_weights(0)
TEXTS = {
    "short": "A fox.",
    "accents": "Où est la bibliothèque? Там, где 本.",
    "long": "It is longer than the window of the model, so it is scored in several windows, each token once. " * 2,
    "spaces": "  ends with a space ",
}
QUESTIONS = [
    {"query": f"The {animal}", "choices": ["runs", "sleeps", "is"], "label": n % 3}
    for n, animal in enumerate(("fox", "dog", "cat", "owl", "bat", "emu", "ant"))
]

CHOICE = """
task: animals
dataset_path: json
dataset_kwargs: {data_files: {test: items/animals.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{query}}"
doc_to_choice: "{{choices}}"
doc_to_target: label
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
WRITTEN = """
task: animals_written
dataset_path: json
dataset_kwargs: {data_files: {test: items/animals.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{query}}"
doc_to_target: "{{choices[label]}}"
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 6, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
GROUP = """
group: zoo
task: [house, animals_again]
aggregate_metric_list: [{metric: acc, weight_by_size: true}]
"""
INNER_GROUP = """
group: house
task: [animals]
aggregate_metric_list: [{metric: acc, weight_by_size: true}]
"""
AGAIN = CHOICE.replace("task: animals", "task: animals_again")
ROLLING = """
task: animals_whole
dataset_path: json
dataset_kwargs: {data_files: {test: items/animals.jsonl}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{query}}"
metric_list: [{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}]
"""

TASKS = {"animals": CHOICE, "again": AGAIN, "written": WRITTEN, "whole": ROLLING, "zoo": GROUP, "house": INNER_GROUP}

SCRIPT = """
import json, os, sys
folder = sys.argv[1]
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.evaluate import EvaluateConfig, evaluate
from marin_rules.pipeline.evaluation.task_files import EvalTask

tasks = [EvalTask(name, folder=f"{folder}/tasks") for name in ("animals", "animals_written", "animals_whole")]
tasks.append(EvalTask("animals", 5, folder=f"{folder}/tasks", alias="animals-5"))
documents = {"texts": f"{folder}/texts"}
common = dict(offline=True, batch_rows=2)

def refused(**settings):
    try:
        evaluate(EvaluateConfig(f"{folder}/training", output_path=f"{folder}/refused", **settings))
    except DataError as error:
        return str(error)

refusals = {
    "task": refused(tasks=[EvalTask("animal", folder=f"{folder}/tasks")], **common),
    "set": refused(held_out={"texts": f"{folder}/nothing"}, **common),
}
assert "jax" not in sys.modules, "refused before a model is loaded"

def write_checkpoint_and_cache():
    import jax, numpy
    from levanter.checkpoint import save_checkpoint
    from levanter.compat.hf_checkpoints import HFCheckpointConverter, load_tokenizer
    from levanter.models.llama import LlamaConfig
    from levanter.store.cache import SerialCacheWriter
    from levanter.trainer import TrainerConfig
    export = f"{folder}/training/hf/step-3"
    converter = HFCheckpointConverter(LlamaConfig, reference_checkpoint=export, tokenizer=load_tokenizer(export))
    trainer = TrainerConfig(require_accelerator=False)
    with trainer.use_device_mesh():
        model = converter.load_pretrained(
            None, ref=export, axis_mapping=trainer.parameter_axis_mapping, dtype=jax.numpy.float32
        )
        save_checkpoint({"model": model}, 4, f"{folder}/training/checkpoints/step-4")
    rows = json.load(open(f"{folder}/rows.json"))
    with SerialCacheWriter(f"{folder}/tokens/validation", {"input_ids": numpy.zeros((0,), numpy.int32)}) as writer:
        writer.write_batch([{"input_ids": numpy.array(row, numpy.int32)} for row in rows])

evaluate(EvaluateConfig(f"{folder}/training", documents, tasks, model_step=3, output_path=f"{folder}/hf", **common))
write_checkpoint_and_cache()
both = {**documents, "tokens": f"{folder}/tokens"}
more = [tasks[0], EvalTask("zoo", folder=f"{folder}/tasks")]
evaluate(EvaluateConfig(f"{folder}/training", both, more, output_path=f"{folder}/levanter", **common))
json.dump(refusals, open(f"{folder}/refusals.json", "w"))
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory, training_python: Path) -> Path:
    """Both evaluations and the refusals, from one process."""
    folder = tmp_path_factory.mktemp("evaluate")
    write_model(folder / "training" / "hf" / "step-3", WEIGHTS)
    (folder / "texts").mkdir()
    lines = [json.dumps({"id": id, "text": text}) for id, text in TEXTS.items()]
    (folder / "texts" / "a.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "tasks" / "items").mkdir(parents=True)
    (folder / "tasks" / "items" / "animals.jsonl").write_text("".join(json.dumps(one) + "\n" for one in QUESTIONS))
    for name, text in TASKS.items():
        (folder / "tasks" / f"{name}.yaml").write_text(text)
    write_tokenizer(folder / "tokens" / "tokenizer")
    sizes = {"documents": len(TEXTS), "bytes": sum(len(text.encode()) for text in TEXTS.values())}
    facts = {"format": "text", "splits": {"validation": sizes}}
    (folder / "tokens" / "tokens.json").write_text(json.dumps(facts))
    rows = [[BOS, *tokens_of(f"{text} "), EOS] for text in TEXTS.values()]
    (folder / "rows.json").write_text(json.dumps(rows))
    run = subprocess.run(
        [training_python, "-c", SCRIPT, folder],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "HF_HOME": str(folder / "hf-home"),
            "MARIN_PREFIX": str(folder / "prefix"),
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return folder


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def samples(folder: Path, name: str) -> list[Any]:
    return [json.loads(line) for line in (folder / "samples" / f"{name}.jsonl").read_text().splitlines()]


def expected(text: str) -> float:
    """In windows of what the model sees at once: each begins with the last token of the one before."""
    tokens = [BOS, *tokens_of(text)]
    return sum(
        score(WEIGHTS, [tokens[start]], tokens[start + 1 : start + 1 + LENGTH])
        for start in range(0, len(tokens) - 1, LENGTH)
    )


@pytest.mark.parametrize(("out", "name"), [("hf", "texts"), ("levanter", "texts"), ("levanter", "tokens")])
def test_bits_per_byte_are_those_of_the_model(out: str, name: str, outcome: Path) -> None:
    rows = samples(outcome / out, f"held_out-{name}")
    assert [row["tokens"] for row in rows] == [len(text.encode()) for text in TEXTS.values()]
    truths = [expected(text) for text in TEXTS.values()]
    assert [row["log_probability"] for row in rows] == pytest.approx(truths, rel=1e-5)
    size = sum(len(text.encode()) for text in TEXTS.values())
    found = read(outcome / out / "results.json")["held_out"][name]
    assert found["bytes"] == size
    assert found["bits_per_byte"]["value"] == pytest.approx(-sum(truths) / math.log(2) / size, rel=1e-5)
    assert found["perplexity"]["value"] == pytest.approx(math.exp(-sum(truths) / size), rel=1e-4)
    assert found["chance"]["bits_per_byte"]["value"] == pytest.approx(math.log2(VOCABULARY))


def test_averages_of_sets(outcome: Path) -> None:
    results = read(outcome / "levanter" / "results.json")
    one, other = (results["held_out"][name]["bits_per_byte"] for name in ("texts", "tokens"))
    assert one["value"] == pytest.approx(other["value"], rel=1e-9), "the same documents"
    for average in ("macro", "micro"):
        found = results["averages"][average]["bits_per_byte"]
        assert found["value"] == pytest.approx(one["value"])
        assert 0 < found["standard_error"] < one["standard_error"], "twice as many documents"
        chance = results["averages"][average]["chance"]["bits_per_byte"]
        assert chance["value"] == pytest.approx(math.log2(VOCABULARY))
    table = (outcome / "levanter" / "report" / "results.csv").read_text()
    assert "average,macro,bits_per_byte" in table, "of one set alone there is none, see below"


@pytest.mark.parametrize("out", ["hf", "levanter"])
def test_choices_are_scored_as_the_model_does(out: str, outcome: Path) -> None:
    hits = []
    for row, question in zip(samples(outcome / out, "animals"), QUESTIONS, strict=True):
        context = tokens_of(question["query"])
        truths = [score(WEIGHTS, context, tokens_of(f" {choice}")) for choice in question["choices"]]
        assert [response[0] for response in row["responses"]] == pytest.approx(truths, rel=1e-5)
        hits.append(float(numpy.argmax(truths) == question["label"]))
        assert row["metrics"]["acc"] == hits[-1]
    found = read(outcome / out / "results.json")["tasks"]["animals"]["metrics"]["acc"]
    assert found["score"] == pytest.approx(numpy.mean(hits))
    assert found["standard_error"] == pytest.approx(numpy.std(hits, ddof=1) / math.sqrt(len(hits)))
    assert found["chance"] == pytest.approx(1 / 3)
    assert found["chance_standard_error"] == pytest.approx(math.sqrt(1 / 3 * 2 / 3 / len(hits)))
    assert found["is_mean_of_items"] is True


def test_the_same_task_with_examples_has_another_name(outcome: Path) -> None:
    found = read(outcome / "hf" / "results.json")["tasks"]["animals-5"]
    assert found["num_fewshot"] == 5
    assert found["truncated_prompts"] > 0, "examples do not fit into this window, and that is told"
    for row, question in zip(samples(outcome / "hf", "animals-5"), QUESTIONS, strict=True):
        assert row["prompts"][0].count("The ") == 6
        assert row["prompts"][0].count(str(question["query"])) == 1, "it is no example for itself"


def test_a_group_has_the_score_of_all_its_tasks(outcome: Path) -> None:
    found = read(outcome / "levanter" / "results.json")["tasks"]
    assert {"animals", "zoo", "zoo.house", "zoo.animals", "zoo.animals_again"} == set(found)
    one, group = found["animals"]["metrics"]["acc"], found["zoo"]["metrics"]["acc"]
    assert found["zoo"]["items"] == 2 * len(QUESTIONS)
    assert found["zoo.house"]["items"] == len(QUESTIONS)
    assert found["zoo.house"]["metrics"]["acc"]["score"] == pytest.approx(one["score"])
    assert group["score"] == pytest.approx(one["score"])
    assert group["chance"] == pytest.approx(1 / 3)
    assert group["chance_standard_error"] == pytest.approx(one["chance_standard_error"] / math.sqrt(2))
    assert 0 < group["standard_error"] < one["standard_error"]


def test_text_is_what_the_model_finds_most_probable(outcome: Path) -> None:
    for row, question in zip(samples(outcome / "hf", "animals_written"), QUESTIONS, strict=True):
        tokens = tokens_of(question["query"])
        made: list[int] = []
        while len(made) < 6:
            token = int(log_probabilities(WEIGHTS, [*tokens, *made])[-1].argmax())
            if token == EOS:
                break
            made.append(token)
        text = bytes(token - 3 for token in made if token >= 3).decode(errors="replace")
        assert row["responses"] == [text.split("\n\n")[0]]
    found = read(outcome / "hf" / "results.json")["tasks"]["animals_written"]["metrics"]["exact_match"]
    assert (found["score"], found["chance"]) == (0.0, 0.0)


def test_whole_texts_of_tasks_have_bits_per_byte_too(outcome: Path) -> None:
    truth = sum(score(WEIGHTS, [BOS], tokens_of(one["query"])) for one in QUESTIONS)
    size = sum(len(one["query"].encode()) for one in QUESTIONS)
    found = read(outcome / "hf" / "results.json")["tasks"]["animals_whole"]["metrics"]["bits_per_byte"]
    assert found["score"] == pytest.approx(-truth / math.log(2) / size, rel=1e-5)
    assert found["standard_error"] > 0
    assert found["chance"] == pytest.approx(math.log2(VOCABULARY)), "a byte is a token"
    assert found["chance_standard_error"] == pytest.approx(0.0, abs=1e-9)


def test_the_table_has_every_score_beside_its_error_and_chance(outcome: Path) -> None:
    table = list(csv.DictReader((outcome / "hf" / "report" / "results.csv").open()))
    assert [(row["kind"], row["name"], row["metric"]) for row in table] == [
        ("held out", "texts", "bits_per_byte"),
        ("held out", "texts", "perplexity"),
        ("task", "animals", "acc"),
        ("task", "animals_written", "exact_match"),
        ("task", "animals_whole", "bits_per_byte"),
        ("task", "animals-5", "acc"),
    ]
    assert all(row["standard_error"] for row in table)
    assert all(row["chance"] and row["chance_standard_error"] for row in table)


def test_the_models_are_told_apart(outcome: Path) -> None:
    kinds = {out: read(outcome / out / "results.json")["model"] for out in ("hf", "levanter")}
    assert (kinds["hf"]["kind"], kinds["hf"]["step"]) == ("hugging_face", 3)
    assert (kinds["levanter"]["kind"], kinds["levanter"]["step"]) == ("levanter", 4)
    assert kinds["hf"]["parameters"] == kinds["levanter"]["parameters"] == sum(one.size for one in WEIGHTS.values())


def test_what_is_unknown_is_refused_before_a_model_is_loaded(outcome: Path) -> None:
    refusals = read(outcome / "refusals.json")
    assert "no task 'animal' in" in refusals["task"]
    assert "did you mean animals" in refusals["task"]
    assert "held-out set 'texts'" in refusals["set"]
