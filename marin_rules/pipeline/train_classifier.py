"""A fastText classifier from labelled documents, evaluated on documents that it has not seen.

    model.bin                the model
    metrics.json             settings, counts, and held-out metrics: accuracy, precision, recall, AUC, calibration
    summary.json what happened to every document that was read
    rejects/documents.jsonl  bad records; only if there are any
    report/calibration.*     scores against the share of documents that have the label: a table and a figure

Which documents are taken, on which side they fall and in which order they are trained on depends on their ids, their
texts and the seed alone, not on shards. Equal texts are on the same side, so that no text is both trained on and
tested; texts that are nearly equal can be on both, so remove duplicates first. With one thread, the default, the same
documents make the same model, byte for byte.

Takes the disk space of the sampled texts twice, and about 300 bytes of memory a document.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.calibration_report import write_calibration
from marin_rules.pipeline.core.classifier_metrics import judged
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.fasttext_library import PREFIX, FasttextModel, library, one_line, provider
from marin_rules.pipeline.core.files import into_place, join, write_json
from marin_rules.pipeline.core.fingerprints import digest
from marin_rules.pipeline.core.left_out import REJECTS
from marin_rules.pipeline.core.records import Record
from marin_rules.pipeline.core.shard_map import ShardSettings, list_shards

MODEL = "model.bin"

_DEFAULTS: Mapping[str, Any] = {"dim": 64, "wordNgrams": 2, "bucket": 100_000, "thread": 1}
"""fastText's own two million buckets of 100 numbers would make a model 800 MB; these make it 26 MB and the words."""

_OURS = ("input", "seed", "label", "verbose", "loss")
_LABEL = re.compile(r"\S+")


@dataclass(frozen=True)
class LabelledDocuments:
    """Documents that are examples of a label."""

    input_path: str | InputName
    label: str
    sampling_rate: float = 1.0
    """Of the documents that are taken, from 0 to 1."""


@dataclass(frozen=True)
class TrainClassifierConfig:
    """A classifier of the labels of `datasets`."""

    datasets: Sequence[LabelledDocuments]
    """Two labels or more; a label may have several."""

    fasttext_args: Mapping[str, Any] = field(default_factory=dict)
    """Of `train_supervised`, such as `epoch`, `lr`, `wordNgrams`. With `thread` above 1, no two models are the same."""

    seed: int = 0
    val_frac: float = 0.1
    """Of documents that are held out. With 0 there are no metrics."""

    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


def train_classifier(config: TrainClassifierConfig) -> dict[str, Any]:
    """Write the model and its evaluation; returns the metrics."""
    arguments = _checked(config)
    with tempfile.TemporaryDirectory() as folder:
        with _Examples(folder, config) as examples:
            examples.read()
        training, validation = examples.training, examples.validation
        _require_labels(training.labels, config)
        training.write(file := os.path.join(folder, "training.txt"))
        trained = library().train_supervised(input=file, seed=config.seed, label=PREFIX, verbose=0, **arguments)
        model_file = os.path.join(folder, MODEL)
        trained.save_model(model_file)
        with into_place(join(config.output_path, MODEL)) as target, open(model_file, "rb") as source:
            shutil.copyfileobj(source, target)
        metrics = {
            "library": provider(),
            "fasttext_args": arguments,
            "seed": config.seed,
            "reproducible": arguments["thread"] == 1,
            "model_bytes": os.path.getsize(model_file),
            "training": {"documents": dict(sorted(training.labels.items()))},
            "validation": _validated(validation, model_file, config),
        }
    write_json(join(config.output_path, "metrics.json"), metrics)
    write_json(join(config.output_path, "summary.json"), examples.account.counts())
    return metrics


def _checked(config: TrainClassifierConfig) -> dict[str, Any]:
    """The arguments of fastText."""
    if not 0 <= config.val_frac < 1:
        raise DataError(f"a fraction of {config.val_frac} cannot be held out: give val_frac from 0 to less than 1")
    for dataset in config.datasets:
        if not _LABEL.fullmatch(dataset.label) or PREFIX in dataset.label:
            raise DataError(f"the label {dataset.label!r} is not a single word: fastText divides labels at white space")
        if not 0 < dataset.sampling_rate <= 1:
            raise DataError(f"{dataset.input_path}: sampling_rate is {dataset.sampling_rate}, not above 0 and up to 1")
    if len({dataset.label for dataset in config.datasets}) < 2:
        raise DataError("a classifier needs datasets with two labels or more: a model of one says yes to everything")
    for name in config.fasttext_args:
        if name in _OURS or name.startswith("autotune"):
            raise DataError(f"fasttext_args cannot set {name!r}: the step does, for reproducible and checked scores")
    return {**_DEFAULTS, **config.fasttext_args}


def _require_labels(found: Counter[str], config: TrainClassifierConfig) -> None:
    for dataset in config.datasets:
        if not found[dataset.label]:
            raise DataError(
                f"no document of {dataset.input_path} is left to train the label {dataset.label!r} on: give more,"
                " a higher sampling_rate, a smaller val_frac, or another seed"
            )


def _validated(validation: _Spool, model_file: str, config: TrainClassifierConfig) -> dict[str, Any] | None:
    if not config.val_frac:
        return None
    if not validation.labels:
        raise DataError(f"val_frac of {config.val_frac} holds out no document: give more documents, or a larger one")
    model = FasttextModel(model_file)
    truth, scores = [], []
    for line in validation.in_order():
        label, _, text = line.removeprefix(PREFIX).partition(" ")
        truth.append(label)
        scores.append(model.probabilities(text))
    metrics, table = judged(truth, scores, config.seed)
    write_calibration(join(config.output_path, "report"), table)
    return metrics


# --- examples


class _Spool:
    """Lines in a file, given back in the order of their keys."""

    def __init__(self, path: str, stack: contextlib.ExitStack) -> None:
        self._file = stack.enter_context(open(path, "wb"))  # noqa: SIM115
        self._places: list[tuple[bytes, int, int]] = []
        self._end = 0
        self.labels: Counter[str] = Counter()

    def add(self, key: bytes, label: str, line: str) -> None:
        data = f"{PREFIX}{label} {line}".encode("utf-8", "replace")
        self._file.write(data)
        self._places.append((key, self._end, len(data)))
        self._end += len(data)
        self.labels[label] += 1

    def in_order(self) -> Iterator[str]:
        """Once its file is closed."""
        with open(self._file.name, "rb") as file:
            for _, start, length in sorted(self._places):
                file.seek(start)
                yield file.read(length).decode()

    def write(self, path: str) -> None:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            for line in self.in_order():
                file.write(line + "\n")


class _Examples:
    """All documents of the datasets that were sampled, divided into those to train on and those held out."""

    def __init__(self, folder: str, config: TrainClassifierConfig) -> None:
        self._config = config
        self._rejects_path = join(config.output_path, REJECTS, "documents.jsonl")
        self._rejects: IO[bytes] | None = None
        self._stack = contextlib.ExitStack()
        self._label_of: dict[bytes, str] = {}
        self.training = _Spool(os.path.join(folder, "train"), self._stack)
        self.validation = _Spool(os.path.join(folder, "held-out"), self._stack)
        self.account = Account("", self._reject)

    def __enter__(self) -> _Examples:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def read(self) -> None:
        total = self.account
        for dataset in self._config.datasets:
            shards = list_shards(str(dataset.input_path), settings=self._config.shards)
            if not shards:
                raise DataError(f"no shards below {dataset.input_path}: is it the output of the step before?")
            for shard in shards:
                account = Account(shard.path, self._reject)
                for row in shard.rows(account):
                    self._take(row.record, dataset, account)
                account.check_balance()
                for name in ("read", "written", "bytes_read"):
                    setattr(total, name, getattr(total, name) + getattr(account, name))
                for name in ("rejected", "dropped", "tallies"):
                    getattr(total, name).update(getattr(account, name))

    def _take(self, record: Record, dataset: LabelledDocuments, account: Account) -> None:
        seed, label, line = self._config.seed, dataset.label, one_line(record["text"])
        if not line:
            account.drop("an empty text")
        elif not _falls_within(f"{seed} sample {record['id']}", dataset.sampling_rate):
            account.drop("not in the sample")
        else:
            text = digest(line)
            if self._label_of.setdefault(text, label) != label:
                account.tallies["texts that have another label elsewhere"] += 1
            held_out = _falls_within(f"{seed} split {text.hex()}", self._config.val_frac)
            spool = self.validation if held_out else self.training
            spool.add(digest(f"{seed} order {label} {text.hex()} {record['id']}"), label, line)
            account.written += 1
            account.tallies[f"{'held out' if held_out else 'trained on'}: {label}"] += 1

    def _reject(self, row: dict[str, Any]) -> None:
        import orjson

        if self._rejects is None:
            self._rejects = self._stack.enter_context(into_place(self._rejects_path))
        self._rejects.write(orjson.dumps(row) + b"\n")


def _falls_within(key: str, fraction: float) -> bool:
    return int.from_bytes(digest(key)[:8], "big") < fraction * 2**64
