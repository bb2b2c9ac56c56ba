"""Scores of documents by a classifier, as attributes: a fastText model, a Hugging Face encoder, or a function.

A fastText model and an encoder give a probability for each label (those of an encoder whose labels do not exclude each
other do not add up to 1; one with a single output gives that number, as `score`); a function gives a number, scores by
label, or spans. A document in which a fastText model knows neither a word nor the end of its line has no scores and is
rejected; any other failure fails its shard.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import batched
from typing import Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.fasttext_library import FasttextModel
from marin_rules.pipeline.core.files import join
from marin_rules.pipeline.core.records import Record
from marin_rules.pipeline.core.shard_map import Shard, ShardSettings, map_shards
from marin_rules.pipeline.core.tokenizer_files import is_hub_name
from marin_rules.pipeline.train_classifier import MODEL

_DIGITS = 6


@dataclass(frozen=True)
class FasttextClassifier:
    """Needs the environment `fasttext` or `data`."""

    model_path: str | InputName
    """The output of `train_classifier`, or the file of a model that was trained with loss softmax."""


@dataclass(frozen=True)
class HuggingFaceClassifier:
    """An encoder with a head for sequence classification. Needs transformers and torch.

    Scores depend slightly on the texts that are in a batch together, so batches never reach from one shard to the next.
    Shards are done one by one, because torch has threads of its own and hangs in forked processes.
    """

    model: str | InputName
    """A folder, or a name on the hub; with HF_HUB_OFFLINE set, only what has been downloaded is used."""

    revision: str | None = None
    """The commit of a name on the hub, which is required: branches move."""

    batch_size: int = 32
    longest_text: int = 512
    """Tokens; the rest of a text is ignored."""


@dataclass(frozen=True)
class FunctionClassifier:
    """A function of a document (the record, not only its text).

    The function is sent with the plan. A name ("module:function") is for a module that is installed in the step's
    environment.
    """

    function: Callable[[Record], Any] | str
    version: str = ""
    """Change it when the function's results change: code is not part of a step's version."""


type Classifier = FasttextClassifier | HuggingFaceClassifier | FunctionClassifier


@dataclass(frozen=True)
class ClassifyConfig:
    """Attributes of the documents below `input_path`."""

    input_path: str | InputName
    classifier: Classifier
    attribute: str = "quality"
    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


def classify(config: ClassifyConfig) -> dict[str, Any]:
    """Write a shard of attributes for each shard of documents."""
    batch_size, score = _scorer(config.classifier)

    def transform(shard: Shard, account: Account) -> Iterator[Record]:
        for rows in batched(shard.rows(account), batch_size):
            values = score([row.record for row in rows])
            for row, value in zip(rows, values, strict=True):
                id = row.record["id"]
                if value is None:
                    account.reject(row.number, "no word that the model knows", id=id, content=row.record["text"])
                else:
                    attributes = {config.attribute: value}
                    yield {"id": id, "source": row.record.get("source", ""), "attributes": attributes}

    is_encoder = isinstance(config.classifier, HuggingFaceClassifier)
    settings = replace(config.shards, processes=1) if is_encoder else config.shards
    return map_shards(transform, str(config.input_path), config.output_path, settings=settings)


def check_encoder(classifier: HuggingFaceClassifier) -> None:
    """Refuse what can be refused before anything runs: a name on the hub without a revision."""
    if isinstance(classifier.model, str) and is_hub_name(classifier.model) and not classifier.revision:
        raise DataError(
            f"the encoder {classifier.model!r} of the Hugging Face hub has no revision: give the commit, as in"
            f" HuggingFaceClassifier({classifier.model!r}, revision='<commit>') (or './{classifier.model}' if it is a"
            " folder)"
        )


type _Score = Callable[[Sequence[Record]], Sequence[Any]]


def _scorer(classifier: Classifier) -> tuple[int, _Score]:
    """How many documents to give it at a time, and what scores them."""
    match classifier:
        case FasttextClassifier():
            return 1, _fasttext(classifier)
        case HuggingFaceClassifier():
            return classifier.batch_size, _encoder(classifier)
        case FunctionClassifier():
            return 1, _function(classifier)


def _fasttext(classifier: FasttextClassifier) -> _Score:
    path = str(classifier.model_path)
    model = FasttextModel(path if path.endswith((".bin", ".ftz")) else join(path, MODEL))
    return lambda records: [model.probabilities(record["text"]) or None for record in records]


# --- Hugging Face


def _encoder(classifier: HuggingFaceClassifier) -> _Score:
    if not os.path.isdir(str(classifier.model)):
        check_encoder(classifier)

    @cache
    def loaded() -> tuple[Any, Any]:
        """Only if there is a shard to do."""
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        where = {"revision": classifier.revision, "local_files_only": _is_offline()}
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(classifier.model), **where)
            model = AutoModelForSequenceClassification.from_pretrained(str(classifier.model), **where)
        except OSError as error:
            raise DataError(f"the encoder {classifier.model} cannot be loaded: {error}") from error
        return tokenizer, model.eval()

    def score(records: Sequence[Record]) -> list[Any]:
        import torch

        tokenizer, model = loaded()
        texts = [record["text"] for record in records]
        given = tokenizer(texts, truncation=True, max_length=classifier.longest_text, padding=True, return_tensors="pt")
        with torch.inference_mode():
            rows: list[list[float]] = model(**given).logits.tolist()
        if not all(math.isfinite(value) for row in rows for value in row):
            raise DataError(f"the encoder {classifier.model} gives scores that are not numbers")
        return [_by_label(row, model.config.id2label, model.config.problem_type) for row in rows]

    return score


def _by_label(logits: list[float], names: Mapping[int, str], problem: str | None) -> dict[str, float]:
    """As the model was trained: its labels may exclude each other, or each be true or not, or be numbers."""
    if len(logits) == 1:
        return {"score": round(logits[0], _DIGITS)}
    if problem == "multi_label_classification":
        scores = [math.exp(min(logit, 0)) / (1 + math.exp(-abs(logit))) for logit in logits]
    elif problem == "regression":
        scores = logits
    else:
        highest = max(logits)
        weights = [math.exp(logit - highest) for logit in logits]
        scores = [weight / sum(weights) for weight in weights]
    return {names[place]: round(score, _DIGITS) for place, score in enumerate(scores)}


def _is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


# --- functions


def _function(classifier: FunctionClassifier) -> _Score:
    given = classifier.function
    function = _imported(given) if isinstance(given, str) else given
    name = given if isinstance(given, str) else getattr(given, "__qualname__", repr(given))

    def score(records: Sequence[Record]) -> list[Any]:
        (record,) = records
        try:
            value = function(dict(record))
        except Exception as error:
            raise DataError(f"{name} failed for document {record['id']!r}: {type(error).__name__}: {error}") from error
        if not _is_attribute(value, len(record["text"])):
            raise DataError(
                f"{name} returned {value!r:.200} for document {record['id']!r}: return a finite number, such numbers by"
                " label, or a list of spans [start, end, score] within the text"
            )
        return [dict(value) if isinstance(value, Mapping) else value]

    return score


def _imported(name: str) -> Callable[[Record], Any]:
    module, colon, function = name.partition(":")
    try:
        if not colon:
            raise ImportError("there is no colon in it")
        found: Callable[[Record], Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise DataError(f"no function {name!r}, which should be 'module:function': {error}") from error
    return found


def _is_attribute(value: object, length: int) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(label, str) and _is_finite(score) for label, score in value.items())
    if isinstance(value, list):
        return all(_is_span(span, length) for span in value)
    return _is_finite(value)


def _is_span(span: object, length: int) -> bool:
    if not isinstance(span, (list, tuple)) or len(span) != 3 or not _is_finite(span[2]):
        return False
    start, end, _ = span
    return type(start) is int and type(end) is int and 0 <= start <= end <= length


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
