"""Evaluate a model: bits per byte and perplexity on held-out sets, and tasks of lm-eval.

Every score comes with its standard error and the score of chance. For tasks chance is a guess among the answers; for
held-out sets it is a model that gives each token of the vocabulary the same probability.

    <output>/results.json             everything, by set and by task
    <output>/samples/<name>.jsonl     a line for each document (`held_out-<set>`) or item of a task
    <output>/report/results.csv       the scores as a table
    <output>/report/samples.csv       some items of each task, with what the model said

Sets and tasks are looked up before the model is loaded: anything unknown or unreadable fails within seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, join, write_json
from marin_rules.pipeline.evaluation import sample_table
from marin_rules.pipeline.evaluation.held_out import check_set, score_set, summarise_sets
from marin_rules.pipeline.evaluation.loaded_model import Precision, loaded, prepare_libraries
from marin_rules.pipeline.evaluation.model_files import find_model
from marin_rules.pipeline.evaluation.sample_table import sample_rows
from marin_rules.pipeline.evaluation.statistics import RESAMPLES, refuse_few_resamples
from marin_rules.pipeline.evaluation.tables import signed, signed_chance, write_csv
from marin_rules.pipeline.evaluation.task_files import EvalTask, loaded_tasks

_NAME = re.compile(r"[\w.,=+-]+")
"""Of a set or a task: it names files."""

COLUMNS = ("kind", "name", "metric", "score", "standard_error", "chance", "chance_standard_error", "items")


@dataclass(frozen=True)
class EvaluateConfig:
    """Scores of one model."""

    model_path: str | InputName
    """The output of a training step, a Hugging Face folder, or a Levanter checkpoint."""

    held_out: Mapping[str, str | InputName] = field(default_factory=dict)
    """Sets by name: folders of documents, or outputs of tokenize steps with a `validation` split."""

    tasks: Sequence[EvalTask] = ()

    model_step: int | None = None
    """Which step of a training. None: the last."""

    reference_path: str | InputName | None = None
    """A Hugging Face folder with the configuration and tokenizer of a Levanter checkpoint that has no export."""

    max_length: int | None = None
    """Tokens that the model sees at once. None: as many as it can."""

    overlap: int = 0
    """Tokens of a long document that each window sees again, as context for what is new in it."""

    max_documents: int | None = None
    max_items: int | None = None
    """At most this many of each set and task. None: all."""

    chat_template: bool = False
    """Whether prompts of tasks are turns of a conversation."""

    begin_with_first_token: bool = False
    """Whether prompts of tasks begin with the token that begins texts. Texts of held-out sets always do."""

    precision: Precision = "float32"
    resamples: int = RESAMPLES
    seed: int = 0

    offline: bool = False
    """Whether the Hugging Face hub must not be asked for anything. (HF_HUB_OFFLINE=1 says the same.)"""

    batch_rows: int = 8
    """Rows of `max_length` tokens that are computed at a time. Changes no result."""

    output_path: str = THIS_OUTPUT_PATH


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Write the results, and return the scores."""
    check_evaluation(config)
    prepare_libraries(offline=config.offline)
    reference = None if config.reference_path is None else str(config.reference_path)
    files = find_model(str(config.model_path), config.model_step, reference)
    for name, path in config.held_out.items():
        check_set(name, str(path), files.tokenizer_sha256)
    results: dict[str, Any] = {"held_out": {}, "averages": {}, "tasks": {}}
    shown: list[dict[str, Any]] = []
    with (
        loaded_tasks(config.tasks) as tasks,
        loaded(files, precision=config.precision, longest=config.max_length, batch_rows=config.batch_rows) as model,
    ):
        if config.overlap >= model.longest:
            raise DataError(
                f"an overlap of {config.overlap} leaves nothing to score: {files.path} sees {model.longest} at once"
            )
        sets = {}
        for name, path in config.held_out.items():
            sets[name] = score_set(name, str(path), model, most_documents=config.max_documents, overlap=config.overlap)
            _write_samples(config, f"held_out-{name}", [one.to_json() for one in sets[name]])
        if sets:
            results |= summarise_sets(sets, model.vocabulary, config.resamples, config.seed)
        for task in tasks:
            from marin_rules.pipeline.evaluation.harness import run_task

            found, samples = run_task(
                task,
                model,
                most_items=config.max_items,
                resamples=config.resamples,
                seed=config.seed,
                chat_template=config.chat_template,
                begin_with_first_token=config.begin_with_first_token,
            )
            results["tasks"] |= found
            for name, items in samples.items():
                _write_samples(config, name, items)
                shown += sample_rows(name, items)
        results["model"] = {
            "path": files.path,
            "kind": files.kind,
            "step": files.step,
            "parameters": model.parameters,
            "vocabulary": model.vocabulary,
            "max_length": model.longest,
            "tokenizer_sha256": files.tokenizer_sha256,
        }
    results["settings"] = _settings(config)
    rows = _table(results)
    write_csv(join(config.output_path, "report", "results.csv"), COLUMNS, rows)
    if shown:
        write_csv(join(config.output_path, "report", "samples.csv"), sample_table.COLUMNS, shown)
    write_json(join(config.output_path, "results.json"), results)
    for row in rows:
        _print(row)
    for name, found in results["held_out"].items():
        if lost := found["changed_documents"]:
            print(
                f"held out {name}: the tokenizer loses something of {lost} of {found['documents']} documents"
                f" ({found['unknown_tokens']} unknown tokens), so that the bits per byte are too low: do not compare"
                " them with those of another tokenizer"
            )
    for name, found in results["tasks"].items():
        if cut := found["truncated_prompts"]:
            print(f"task {name}: {cut} of {found['items']} prompts are longer than the model's window, and were cut")
    return {f"{row['name']}/{row['metric']}": row["score"] for row in rows}


def check_evaluation(config: EvaluateConfig) -> None:
    """Refuse what is wrong whatever the model is: while an experiment is planned, rather than after a training."""
    if not config.held_out and not config.tasks:
        raise DataError("nothing to evaluate: name a held-out set or a task")
    for name in [*config.held_out, *(task.label for task in config.tasks)]:
        if not _NAME.fullmatch(name):
            raise DataError(f"{name!r} cannot name a set or a task: letters, digits and _.,=+- can")
    for what in ("max_documents", "max_items", "max_length"):
        value = getattr(config, what)
        if value is not None and value < 1:
            raise DataError(f"{what} is {value}: use at least 1, or None for all")
    for what, least in (("overlap", 0), ("seed", 0), ("batch_rows", 1)):
        if getattr(config, what) < least:
            raise DataError(f"{what} is {getattr(config, what)}: use at least {least}")
    if config.max_length is not None and config.overlap >= config.max_length:
        raise DataError(
            f"an overlap of {config.overlap} leaves nothing to score in windows of {config.max_length} tokens"
        )
    # Its samples would be written over those of the set.
    if both := [task.label for task in config.tasks if task.label in {f"held_out-{name}" for name in config.held_out}]:
        raise DataError(f"the task {both[0]!r} has the name of a held-out set's samples: give it an alias")
    for task in config.tasks:
        if task.num_fewshot is not None and task.num_fewshot < 0:
            raise DataError(f"task {task.label!r}: num_fewshot is {task.num_fewshot}: use at least 0")
    if config.precision not in get_args(Precision.__value__):
        raise DataError(f"precision {config.precision!r} is none of {', '.join(get_args(Precision.__value__))}")
    refuse_few_resamples(config.resamples)


def _settings(config: EvaluateConfig) -> dict[str, Any]:
    names = (
        *("max_length", "overlap", "max_documents", "max_items", "chat_template", "begin_with_first_token"),
        *("precision", "resamples", "seed"),
    )
    return {name: getattr(config, name) for name in names}


def _write_samples(config: EvaluateConfig, name: str, rows: list[dict[str, Any]]) -> None:
    import orjson

    with into_place(join(config.output_path, "samples", f"{name}.jsonl")) as file:
        for row in rows:
            file.write(orjson.dumps(row, default=str, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")


def _table(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for name, found in results["held_out"].items():
        for metric in ("bits_per_byte", "perplexity"):
            chance = found["chance"][metric]
            chance = chance if isinstance(chance, dict) else {"value": chance, "standard_error": 0.0}
            rows.append(
                _row("held out", name, metric, found[metric], chance, found["documents"]),
            )
    averages = results["averages"] if len(results["held_out"]) > 1 else {}  # Those of one set are its scores.
    for name, found in averages.items():
        score = found["bits_per_byte"]
        chance = found["chance"]["bits_per_byte"]
        rows.append(_row("average", name, "bits_per_byte", score, chance, len(results["held_out"])))
    for name, found in results["tasks"].items():
        for metric, facts in found["metrics"].items():
            score = {"value": facts["score"], "standard_error": facts["standard_error"]}
            chance = {"value": facts["chance"], "standard_error": facts["chance_standard_error"]}
            rows.append(_row("task", name, metric, score, chance, found["items"]))
    return rows


def _row(
    kind: str, name: str, metric: str, score: Mapping[str, Any], chance: Mapping[str, Any], items: int
) -> dict[str, Any]:
    values = (score["value"], score["standard_error"], chance.get("value"), chance.get("standard_error"), items)
    return dict(zip(COLUMNS, (kind, name, metric, *values), strict=True))


def _print(row: Mapping[str, Any]) -> None:
    chance = signed_chance(row["chance"], row["chance_standard_error"])
    print(
        f"{row['kind']} {row['name']}: {row['metric']} {signed(row['score'], row['standard_error'])}"
        f" ({chance}, {row['items']} {'sets' if row['kind'] == 'average' else 'items'})",
        flush=True,
    )
