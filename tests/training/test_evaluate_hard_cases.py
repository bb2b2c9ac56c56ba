"""Evaluations of what is broken, planted or unusual: each is right, or is refused by name. All run in one process."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest

from support.tiny_llama import (
    BOS,
    EOS,
    PAD,
    SPECIAL,
    Weights,
    log_probabilities,
    make_weights,
    score,
    tokens_of,
    write_model,
)

pytestmark = pytest.mark.processes

ANIMALS = ("fox", "dog", "cat", "owl", "bat", "emu", "ant")
QUESTIONS = [
    {"query": f"The {animal}", "choices": ["runs", "sleeps", "is"], "label": n % 3, "labels": [n % 3, 1]}
    for n, animal in enumerate(ANIMALS)
]
TWO = [{**one, "choices": ["runs", "sleeps"], "label": n % 2} for n, one in enumerate(QUESTIONS[:4])]
CHOICE = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: items/animals.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{query}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: label
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""


def choice(name: str) -> str:
    return CHOICE.format(name=name)


def group(name: str, weight_by_size: str) -> str:
    metric = f"{{metric: acc, weight_by_size: {weight_by_size}}}"
    return f"group: {name}\ntask: [animals, two]\naggregate_metric_list: [{metric}]\n"


NO_ANSWER = choice("no_answer").replace("{{choices}}", "{{['' if query == 'The ant' else 'runs', query]}}")
NO_ANSWER += 'target_delimiter: ""\n'
WRITTEN = """
task: written
dataset_path: json
dataset_kwargs: {data_files: {test: items/animals.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{query}}"
doc_to_target: "{{choices[label]}}"
generation_kwargs: {until: [ENDS], max_gen_toks: 20, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
LIKELY = WRITTEN.split("generation_kwargs")[0].replace("output_type: generate_until", "output_type: loglikelihood")
LIKELY = LIKELY.replace("task: written", "task: likely") + (
    "metric_list: [{metric: acc, aggregation: mean, higher_is_better: true},"
    " {metric: perplexity, aggregation: perplexity, higher_is_better: false}]\n"
)
"""How probable one answer is, as LAMBADA asks."""
PAIRS = "metric_list: [" + "".join(
    f"{{metric: {metric}, aggregation: {aggregation}, higher_is_better: {better}}}, "
    for metric, aggregation, better in (
        ("f1", "f1", "true"),
        ("mcc", "matthews_corrcoef", "true"),
        ("brier_score", "brier_score", "false"),
    )
)
MUTUAL = "{metric: acc_mutual_info, aggregation: mean, higher_is_better: true}"
CALLS = "{{ cycler.__init__.__globals__.os.system('touch executed') }}{{query}}"
FOLDERS = {
    "tasks": {
        "animals": choice("animals"),
        "two": choice("two").replace("animals.jsonl", "two.jsonl"),
        "several_right": choice("several_right").replace("target: label", "target: labels"),
        "mutual": choice("mutual").replace("metric_list: [", f"metric_list: [{MUTUAL}, "),
        "by_task": group("by_task", weight_by_size="false"),
        "by_item": group("by_item", weight_by_size="true"),
        "written": WRITTEN.replace("ENDS", '"<|pad|>"'),
        "from_few": WRITTEN.replace("task: written", "task: from_few")
        .replace("ENDS", '"x"')
        .replace("do_sample: false", "do_sample: true, temperature: 1.0, top_k: 1"),
        "no_answer": NO_ANSWER,
        "one_answer": choice("one_answer").replace("{{choices}}", "{{['runs']}}").replace("label", "0"),
        "likely": LIKELY,
        "equal": choice("equal").replace("{{choices}}", "{{[choices[0], choices[0], 'zzz zzz', choices[0]]}}"),
        "pairs": choice("pairs").replace("animals.jsonl", "two.jsonl").replace("metric_list: [", PAIRS),
        "blank": choice("blank").replace("{{query}}", " "),
        "nothing": NO_ANSWER.replace("no_answer", "nothing").replace("{{query}}", ""),
        "validated": choice("validated").replace("test_split: test", "validation_split: test\nfewshot_split: test"),
        "certain": group("certain", weight_by_size="true").replace("animals, two", "one_answer"),
        "stated": choice("stated") + "metadata: {chance: 25}\n",
    },
    "function": {"planted": choice("planted") + "process_docs: !function planted.run\n"},
    "template": {"planted": choice("planted").replace("{{query}}", CALLS)},
    "metric": {"planted": choice("planted").replace("metric: acc", "metric: planted")},
    "pickle": {"planted": choice("planted").replace("dataset_path: json", "dataset_path: pandas")},
    "name": {
        "part": choice("../../../part"),
        "planted": "group: planted\ntask: [../../../part]\naggregate_metric_list: [{metric: acc}]\n",
    },
}
"""Folders of tasks: YAML files by name."""

PLANTED = ("function", "template", "metric", "pickle", "name")

CASES: dict[str, dict[str, Any]] = {
    "chances": {"tasks": ["several_right", "mutual", "by_task", "by_item"]},
    "written": {"model": "pausing", "tasks": ["written"]},
    "no answer": {"tasks": ["no_answer"]},
    "nothing at all": {"tasks": ["nothing"]},
    "blank": {"tasks": ["blank"]},
    "equal": {"tasks": ["equal", "animals"]},
    "pairs": {"tasks": ["pairs"]},
    "likely": {"tasks": ["likely"]},
    "examples": {"others": [{"name": "validated", "num_fewshot": 5}]},
    "too many examples": {"others": [{"name": "animals", "num_fewshot": 7}]},
    "conversation": {"model": "talking", "others": [{"name": "animals", "num_fewshot": 2}], "chat_template": True},
    "silent": {"model": "silent", "sets": ["mixed"]},
    "mute": {"model": "silent", "sets": ["foreign"]},
    "other sampling": {"tasks": ["from_few"]},
    "short": {"tasks": ["animals"], "max_length": 9},
    "unstacked": {"model": "unstacked/checkpoints/step-4", "sets": ["texts"], "tasks": ["written"]},
    "exported": {"model": "unstacked/hf/step-4", "sets": ["texts"], "tasks": ["written"]},
    "fewer layers": {"model": "unstacked/checkpoints/step-4", "sets": ["texts"], "reference_path": "shallow"},
    "begun once": {"model": "talking", "tasks": ["animals"], "chat_template": True, "begin_with_first_token": True},
    "begun by the template": {"model": "talking", "tasks": ["animals"], "chat_template": True},
    "twins": {"tasks": ["by_task"], "others": [{"name": "animals", "alias": "by_task.animals"}]},
    "narrower layers": {"model": "unstacked/checkpoints/step-4", "sets": ["texts"], "reference_path": "narrow"},
    "certain": {"tasks": ["certain"]},
    "stated": {"tasks": ["stated"]},
    "broken weights": {"model": "broken", "tasks": ["animals"]},
    "capped": {"model": "capped", "sets": ["texts"]},
    "losing": {"model": "losing", "sets": ["texts"]},
    "small letters": {"model": "small_letters", "sets": ["texts"]},
    "few tokens": {"model": "few_tokens", "sets": ["texts"]},
    **{name: {"folder": name, "tasks": ["planted"]} for name in PLANTED},
    "trusted": {"folder": "function", "tasks": ["planted"], "allow_code": True},
}
"""What is evaluated, by the name of the case."""

SCRIPT = """
import json, os, sys
folder, cases = sys.argv[1], json.loads(sys.argv[2])
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.evaluate import EvaluateConfig, evaluate
from marin_rules.pipeline.evaluation.task_files import EvalTask

def write_checkpoint():
    from dataclasses import replace
    import haliax, jax
    from levanter.checkpoint import save_checkpoint
    from levanter.compat.hf_checkpoints import HFCheckpointConverter, load_tokenizer
    from levanter.models.llama import LlamaConfig
    from levanter.trainer import TrainerConfig
    export = f"{folder}/model"
    converter = HFCheckpointConverter(LlamaConfig, reference_checkpoint=export, tokenizer=load_tokenizer(export))
    trainer = TrainerConfig(require_accelerator=False)
    config = converter.config_from_hf_config(converter.hf_config_from_hf_checkpoint(export))
    with trainer.use_device_mesh():
        model = replace(config, scan_layers=False).build(haliax.Axis("vocab", 259), key=jax.random.PRNGKey(0))
        save_checkpoint({"model": model}, 4, f"{folder}/unstacked/checkpoints/step-4")
        converter.save_pretrained(model, f"{folder}/unstacked/hf/step-4")

errors = {}
for name, case in cases.items():
    if case.get("model") == "unstacked/checkpoints/step-4" and not os.path.exists(f"{folder}/unstacked"):
        write_checkpoint()
    if "reference_path" in case:
        case["reference_path"] = f"{folder}/{case['reference_path']}"
    held_out = {one: f"{folder}/{one}" for one in case.pop("sets", [])}
    place, allow_code = f"{folder}/{case.pop('folder', 'tasks')}", case.pop("allow_code", False)
    tasks = [EvalTask(one, folder=place, allow_code=allow_code) for one in case.pop("tasks", [])]
    tasks += [EvalTask(**one, folder=place) for one in case.pop("others", [])]
    path, output = f"{folder}/{case.pop('model', 'model')}", f"{folder}/out/{name}"
    try:
        evaluate(EvaluateConfig(path, held_out, tasks, offline=True, batch_rows=2, output_path=output, **case))
    except DataError as error:
        errors[name] = str(error)
json.dump(errors, open(f"{folder}/errors.json", "w"))
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory, training_python: Path) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    _write_models(folder)
    (folder / "texts").mkdir()
    (folder / "texts" / "a.jsonl").write_text(json.dumps({"id": "0", "text": "Über den Wolken"}) + "\n")
    for name, texts in {"mixed": ["", "A fox.", "本"], "foreign": ["本"]}.items():
        (folder / name).mkdir()
        lines = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(texts)]
        (folder / name / "a.jsonl").write_text("".join(f"{line}\n" for line in lines))
    for place, tasks in FOLDERS.items():
        (folder / place / "items").mkdir(parents=True)
        for name, items in {"animals": QUESTIONS, "two": TWO}.items():
            (folder / place / "items" / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in items))
        for name, text in tasks.items():
            (folder / place / f"{name}.yaml").write_text(text)
    for module in (folder / "function" / "planted.py", folder / "metric" / "planted" / "planted.py"):
        module.parent.mkdir(exist_ok=True)
        module.write_text(f"print('executed', {module.parent.name!r})\ndef run(documents):\n    return documents\n")
    run = subprocess.run(
        [training_python, "-c", SCRIPT, folder, json.dumps(CASES)],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "HF_HOME": str(folder / "hf-home"),
            "MARIN_PREFIX": str(folder / "prefix"),
            "JAX_PLATFORMS": "cpu",
        },
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    (folder / "log").write_text(run.stdout)
    (folder / "warnings").write_text(run.stderr)
    return folder


def pausing() -> Weights:
    """A model that often says that it pauses, with a special token that does not end a text."""
    weights = make_weights(0)
    weights["lm_head.weight"][PAD] *= 3
    return weights


def lose(folder: Path, letter: str) -> None:
    """A tokenizer that does not know a letter."""
    tokenizer, settings = folder / "tokenizer.json", folder / "tokenizer_config.json"
    contents = json.loads(tokenizer.read_text())
    contents["model"]["unk_token"] = SPECIAL[PAD]
    del contents["model"]["vocab"][letter]
    tokenizer.write_text(json.dumps(contents))
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "unk_token": SPECIAL[PAD]}))


def _write_models(folder: Path) -> None:
    weights = make_weights(0)
    write_model(folder / "model", weights)
    broken = {name: weight.copy() for name, weight in weights.items()}
    broken["model.layers.1.mlp.down_proj.weight"][3, 3] = numpy.nan
    write_model(folder / "broken", broken)
    ends = ("model.embed_tokens.weight", "lm_head.weight")
    few: Weights = {name: weight[:100] if name in ends else weight for name, weight in weights.items()}
    write_model(folder / "few_tokens", few)
    write_model(folder / "pausing", pausing())
    write_model(folder / "losing", weights)
    lose(folder / "losing", "W")
    write_model(folder / "small_letters", weights)
    tokenizer = folder / "small_letters" / "tokenizer.json"
    tokenizer.write_text(json.dumps({**json.loads(tokenizer.read_text()), "normalizer": {"type": "Lowercase"}}))
    write_model(folder / "silent", weights)
    tokenizer = folder / "silent" / "tokenizer.json"
    deaf = {"type": "Replace", "pattern": {"Regex": "[^ -~]"}, "content": ""}
    tokenizer.write_text(json.dumps({**json.loads(tokenizer.read_text()), "normalizer": deaf}))
    write_model(folder / "talking", weights)
    settings = folder / "talking" / "tokenizer_config.json"
    turns = "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}{% endfor %}"
    template = "{{ bos_token }}" + turns
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "chat_template": template}))
    write_model(folder / "shallow", weights)
    write_model(folder / "narrow", weights)
    write_model(folder / "capped", weights)
    for name, change in {
        "few_tokens": {"vocab_size": 100},
        "shallow": {"num_hidden_layers": 1},
        "narrow": {"intermediate_size": 8},
        "capped": {"model_type": "gemma2", "final_logit_softcapping": 30.0},
    }.items():
        config = folder / name / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), **change}))


def read(outcome: Path, name: str) -> Any:
    return json.loads((outcome / "out" / name / "results.json").read_text())


def samples(outcome: Path, case: str, task: str) -> list[Any]:
    return [json.loads(line) for line in (outcome / "out" / case / "samples" / f"{task}.jsonl").open()]


def error(outcome: Path, name: str) -> str:
    found = json.loads((outcome / "errors.json").read_text()).get(name)
    assert found is not None, f"{name!r} was not refused"
    return str(found)


def test_a_model_whose_weights_are_no_numbers_has_no_score(outcome: Path) -> None:
    """Its answers are all the first, which is right as often as any guess."""
    found = error(outcome, "broken weights")
    assert "mlp.down_proj.weight" in found
    assert "broken are not all numbers" in found


def test_tokens_beyond_the_model_are_refused(outcome: Path) -> None:
    found = error(outcome, "few tokens")
    assert "few_tokens makes token 198" in found
    assert "knows 100 tokens" in found


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("function", "function/planted.yaml executes Python (process_docs)"),
        ("template", "SecurityError"),
        ("metric", "has a metric that lm-eval does not have ('planted')"),
        ("pickle", "reads data as 'pandas'"),
        ("name", "part '../../../part', which cannot name a file"),
    ],
)
def test_a_folder_of_tasks_executes_and_overwrites_nothing(name: str, reason: str, outcome: Path) -> None:
    assert reason in error(outcome, name)


def test_only_a_folder_that_is_trusted_has_code_executed(outcome: Path) -> None:
    executed = {line for line in (outcome / "log").read_text().splitlines() if line.startswith("executed")}
    assert executed == {"executed function"}
    assert read(outcome, "trusted")["tasks"]["planted"]["items"] == len(QUESTIONS)


def test_text_that_a_tokenizer_loses_is_counted_and_told(outcome: Path) -> None:
    assert read(outcome, "losing")["held_out"]["texts"]["unknown_tokens"] == 1
    lines = (outcome / "log").read_text().splitlines()
    told = [line for line in lines if line.startswith("held out texts: the tokenizer loses")]
    for line, tokens in zip(told, (1, 0), strict=True):
        assert line.startswith(f"held out texts: the tokenizer loses something of 1 of 1 documents ({tokens} unknown")
    for name, documents in {"losing": 1, "small letters": 1, "exported": 0}.items():
        assert read(outcome, name)["held_out"]["texts"]["changed_documents"] == documents


def test_a_model_of_which_levanter_leaves_something_out_is_refused(outcome: Path) -> None:
    assert "caps its logits (final_logit_softcapping 30.0)" in error(outcome, "capped")


def test_chance_is_what_a_guess_gets(outcome: Path) -> None:
    tasks = read(outcome, "chances")["tasks"]
    right = [len(set(one["labels"])) / 3 for one in QUESTIONS]
    assert tasks["several_right"]["metrics"]["acc"]["chance"] == pytest.approx(numpy.mean(right))
    assert {name: one["chance"] for name, one in tasks["mutual"]["metrics"].items()} == pytest.approx(
        {"acc": 1 / 3, "acc_mutual_info": 1 / 3}
    ), "lm-eval asks for each answer twice"
    of_tasks = [tasks[f"by_task.{name}"]["metrics"]["acc"] for name in ("animals", "two")]
    for name, weights in {"by_task": [1, 1], "by_item": [len(QUESTIONS), len(TWO)]}.items():
        found = tasks[name]["metrics"]["acc"]
        for number in ("score", "chance"):
            expected = numpy.average([one[number] for one in of_tasks], weights=weights)
            assert found[number] == pytest.approx(expected), (name, number)
        errors = [one["chance_standard_error"] * weight for one, weight in zip(of_tasks, weights, strict=True)]
        assert found["chance_standard_error"] == pytest.approx(numpy.linalg.norm(errors) / sum(weights))


def test_a_stated_chance_is_a_probability(outcome: Path) -> None:
    assert "task 'stated' states a chance of 25" in error(outcome, "stated")


def test_a_score_of_one_is_not_certain(outcome: Path) -> None:
    for name in ("certain", "certain.one_answer"):
        found = read(outcome, "certain")["tasks"][name]["metrics"]["acc"]
        assert found["score"] == 1.0
        assert found["standard_error"] == pytest.approx(0.116, abs=5e-4), "seven items are few"
    assert "task certain: acc 1.0000 ± 0.1160" in (outcome / "log").read_text()


def test_a_checkpoint_of_layers_by_themselves_is_the_model_that_was_trained(outcome: Path) -> None:
    """As `scan_layers=False` leaves it, which is faster for tiny models."""
    scores = [read(outcome, name)["held_out"]["texts"]["bits_per_byte"]["value"] for name in ("unstacked", "exported")]
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)
    written = [[row["responses"] for row in samples(outcome, name, "written")] for name in ("unstacked", "exported")]
    assert written[0] == written[1]
    assert any(text for (text,) in written[0])
    assert read(outcome, "unstacked")["model"]["kind"] == "levanter"


@pytest.mark.parametrize("name", ["fewer layers", "narrower layers"])
def test_a_checkpoint_of_another_model_is_refused(name: str, outcome: Path) -> None:
    """Levanter would take the first layers of a deeper model."""
    assert "cannot be read as the model that" in error(outcome, name)


def test_text_ends_at_a_special_token_that_the_task_names(outcome: Path) -> None:
    lines = (outcome / "out" / "written" / "samples" / "written.jsonl").read_text().splitlines()
    ends = set()
    for row, question in zip(map(json.loads, lines), QUESTIONS, strict=True):
        tokens = tokens_of(str(question["query"]))
        made: list[int] = []
        while len(made) < 20 and made[-1:] not in ([PAD], [EOS]):
            made.append(int(log_probabilities(pausing(), [*tokens, *made])[-1].argmax()))
        ends.add(made[-1])
        text = bytes(token - len(SPECIAL) for token in made if token >= len(SPECIAL)).decode(errors="replace")
        assert row["responses"] == [text]
    assert PAD in ends


def test_sampling_that_the_engine_does_not_know_is_refused(outcome: Path) -> None:
    """It would sample from all tokens."""
    assert "task 'from_few' has text generated with top_k 1" in error(outcome, "other sampling")


def test_a_prompt_begins_once(outcome: Path) -> None:
    """Also if its template has begun it already."""
    scores = [
        [json.loads(line)["responses"] for line in (outcome / "out" / name / "samples" / "animals.jsonl").open()]
        for name in ("begun once", "begun by the template")
    ]
    assert scores[0] == scores[1]


def test_a_part_of_a_group_with_the_name_of_another_task_is_refused(outcome: Path) -> None:
    assert "two tasks are called 'by_task.animals'" in error(outcome, "twins")


def test_an_answer_without_tokens_is_refused(outcome: Path) -> None:
    """Its probability is 1, whatever the model."""
    assert "task 'no_answer' has an answer without tokens of its own ('')" in error(outcome, "no answer")


def test_a_prompt_of_spaces_alone_is_no_prompt(outcome: Path) -> None:
    """lm-eval takes the spaces for the beginning of the answer."""
    assert "task 'nothing' has an answer without tokens of its own ('')" in error(outcome, "nothing at all")
    for row, question in zip(samples(outcome, "blank", "blank"), QUESTIONS, strict=True):
        truths = [score(make_weights(0), [BOS], tokens_of(f"  {answer}")) for answer in question["choices"]]
        assert [response[0] for response in row["responses"]] == pytest.approx(truths, rel=1e-5)


def test_chance_of_a_likelihood_is_that_of_equal_probabilities(outcome: Path) -> None:
    found = read(outcome, "likely")["tasks"]["likely"]["metrics"]
    lengths = numpy.array([len(tokens_of(one["choices"][one["label"]])) for one in QUESTIONS])
    assert found["acc"]["chance"] == pytest.approx((259.0**-lengths).mean())
    assert found["perplexity"]["chance"] == pytest.approx(259.0 ** lengths.mean())
    assert found["perplexity"]["chance_standard_error"] > 0
    answers = [one["choices"][one["label"]] for one in QUESTIONS]
    truths = [
        score(make_weights(0), tokens_of(one["query"]), tokens_of(answer))
        for one, answer in zip(QUESTIONS, answers, strict=True)
    ]
    assert found["perplexity"]["score"] == pytest.approx(math.exp(-numpy.mean(truths)), rel=1e-4)
    assert "os.fork() was called" not in (outcome / "warnings").read_text(), "JAX has threads"


def test_equal_answers_are_equally_probable(outcome: Path) -> None:
    """Wherever they are computed: the last digit of a sum would choose among them otherwise."""
    for row in samples(outcome, "equal", "equal"):
        first, again, _, last = row["responses"]
        assert first == again == last


def test_scores_of_pairs_have_an_error_and_a_chance(outcome: Path) -> None:
    found = read(outcome, "pairs")["tasks"]["pairs"]["metrics"]
    assert set(found) == {"acc", "f1", "mcc", "brier_score"}
    right = [one["label"] for one in TWO]
    rows = samples(outcome, "pairs", "pairs")
    scores = numpy.array([[response[0] for response in row["responses"]] for row in rows])
    shares = numpy.exp(scores) / numpy.exp(scores).sum(axis=1, keepdims=True)
    briers = ((shares - numpy.eye(2)[right]) ** 2).sum(axis=1)
    assert found["brier_score"]["score"] == pytest.approx(briers.mean(), rel=1e-5)
    error = briers.std(ddof=1) / math.sqrt(len(briers))
    assert found["brier_score"]["standard_error"] == pytest.approx(error, rel=0.1)
    assert found["brier_score"]["chance"] == pytest.approx(0.5)
    assert found["brier_score"]["chance_standard_error"] == pytest.approx(0.0)
    guesses = list(itertools.product((0, 1), repeat=len(right)))
    for metric, truth in (("f1", _f1), ("mcc", _correlation)):
        expected = [truth(right, guess) for guess in guesses]
        assert found[metric]["chance"] == pytest.approx(numpy.mean(expected), abs=0.07)
        assert found[metric]["chance_standard_error"] == pytest.approx(numpy.std(expected), rel=0.15)


def _f1(right: Sequence[int], guess: Sequence[int]) -> float:
    hits = sum(one and other for one, other in zip(right, guess, strict=True))
    return 2 * hits / (sum(right) + sum(guess))


def _correlation(right: Sequence[int], guess: Sequence[int]) -> float:
    return 0.0 if len(set(guess)) < 2 else float(numpy.corrcoef(right, guess)[0, 1])


def test_no_item_is_an_example_for_itself(outcome: Path) -> None:
    """Though the examples are drawn from the items that are asked."""
    for row, question in zip(samples(outcome, "examples", "validated"), QUESTIONS, strict=True):
        assert row["prompts"][0].count("The ") == 6
        assert row["prompts"][0].count(question["query"]) == 1
    assert "'animals' has 6 items to draw 7 examples" in error(outcome, "too many examples")


def test_examples_are_turns_of_a_conversation(outcome: Path) -> None:
    for row in samples(outcome, "conversation", "animals"):
        roles = re.findall(r"\[(user|assistant)\]", row["prompts"][0])
        assert roles == ["user", "assistant", "user", "assistant", "user"]


def test_a_document_without_tokens_is_counted(outcome: Path) -> None:
    found = read(outcome, "silent")["held_out"]["mixed"]
    assert (found["documents"], found["changed_documents"], found["bytes"]) == (2, 1, 9)
    truth = score(make_weights(0), [BOS], tokens_of("A fox."))
    assert found["bits_per_byte"]["value"] == pytest.approx(-truth / math.log(2) / 9, rel=1e-5)
    assert found["perplexity"]["value"] == pytest.approx(math.exp(-truth / 6), rel=1e-5)
    assert found["perplexity"]["low"] >= 0
    assert "tokenizer makes no tokens of the text in" in error(outcome, "mute")


def test_prompts_that_were_cut_are_counted_once_an_item_and_told(outcome: Path) -> None:
    assert read(outcome, "short")["tasks"]["animals"]["truncated_prompts"] == len(QUESTIONS)
    told = f"task animals: {len(QUESTIONS)} of {len(QUESTIONS)} prompts are longer than the model's window"
    assert told in (outcome / "log").read_text()
