"""Scores by functions and encoders, and what is refused: libraries that are wrong, and examples that teach nothing.

Models of fastText are trained and used in tests/training/test_classifier.py.
"""

from __future__ import annotations

import math
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.classify import (
    ClassifyConfig,
    FasttextClassifier,
    FunctionClassifier,
    HuggingFaceClassifier,
    classify,
)
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.fasttext_library import one_line
from marin_rules.pipeline.train_classifier import LabelledDocuments, TrainClassifierConfig, train_classifier

SHARDS = {
    "a.jsonl": [{"id": "1", "text": "one two\nthree", "source": "s"}, {"id": "2", "text": ""}],
    "b.jsonl": [{"id": "3", "text": "ünïcode \u2028 \U0001f40b"}, "no JSON"],
}


def words(document: dict[str, Any]) -> int:
    return len(document["text"].split())


def scored(corpus: Any, classifier: Any) -> dict[str, Any]:
    given = corpus.write("in", SHARDS)
    classify(ClassifyConfig(given, classifier, "value", output_path=corpus.path("out")))
    return {row["id"]: row["attributes"]["value"] for row in corpus.records("out")}


# --- functions


def test_a_function(corpus: Any) -> None:
    assert scored(corpus, FunctionClassifier(words)) == {"1": 3, "2": 0, "3": 2}
    assert corpus.records("out")[0] == {"id": "1", "source": "s", "attributes": {"value": 3}}
    summary = corpus.summary("out")
    assert (summary["read"], summary["written"], summary["rejected"]) == (4, 3, {"not JSON": 1})


def test_a_function_by_its_name(corpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (corpus.folder / "my_scores.py").write_text("def length(document):\n    return {'long': len(document['text'])}\n")
    monkeypatch.syspath_prepend(str(corpus.folder))
    assert scored(corpus, FunctionClassifier("my_scores:length"))["1"] == {"long": 13}
    for name in ("my_scores:width", "no_such_module:f", "length"):
        with pytest.raises(DataError, match=f"no function '{name}'"):
            scored(corpus, FunctionClassifier(name))


def test_a_function_may_return_spans(corpus: Any) -> None:
    found = scored(corpus, FunctionClassifier(lambda document: [[0, len(document["text"]), 1.0]]))
    assert found["1"] == [[0, 13, 1.0]]


@pytest.mark.parametrize(
    "value", [None, "high", math.nan, math.inf, {"good": None}, {1: 0.5}, [[0, 99, 1.0]], [[2, 1, 1.0]], [0.5]]
)
def test_a_value_that_is_no_attribute_fails_with_the_names_of_function_and_document(value: Any, corpus: Any) -> None:
    with pytest.raises(DataError, match=r"a\.jsonl: .*<lambda> returned .* for document '1'"):
        scored(corpus, FunctionClassifier(lambda document: value))


def test_a_function_that_raises_fails_its_shard_alone(corpus: Any) -> None:
    with pytest.raises(DataError, match=r"1 of 2 shards failed.* failed for document '2': ZeroDivisionError"):
        scored(corpus, FunctionClassifier(lambda document: 1 / words(document)))
    assert [row["id"] for row in corpus.records("out")] == ["3"]


def test_a_function_cannot_change_documents(corpus: Any) -> None:
    scored(corpus, FunctionClassifier(lambda document: bool(document.clear())))
    assert [row["id"] for row in corpus.records("out")] == ["1", "2", "3"]


# --- encoders


class StandInEncoder:
    """Gives each text the logits 0 and its number of characters, and remembers the batches."""

    def __init__(self, labels: int, problem: str | None = None) -> None:
        self.labels = labels
        self.batches: list[int] = []
        self.config = types.SimpleNamespace(id2label={0: "short", 1: "long"}, problem_type=problem)

    def eval(self) -> StandInEncoder:
        return self

    def __call__(self, texts: list[str]) -> Any:
        self.batches.append(len(texts))
        rows = [[0.0, float(len(text))][-self.labels :] for text in texts]
        return types.SimpleNamespace(logits=types.SimpleNamespace(tolist=lambda: rows))


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch, request: Any) -> StandInEncoder:
    """In place of transformers and torch, which are too large for the tests' environment."""
    import contextlib

    found = StandInEncoder(*request.param)
    asked: dict[str, Any] = {}

    class Auto:
        @staticmethod
        def from_pretrained(name: str, **where: Any) -> Any:
            asked.update(where)
            return found

    class Tokenizer(Auto):
        @staticmethod
        def from_pretrained(name: str, **where: Any) -> Any:
            return lambda texts, **settings: {"texts": texts}

    transformers: Any = types.ModuleType("transformers")
    transformers.AutoModelForSequenceClassification, transformers.AutoTokenizer = Auto, Tokenizer
    torch: Any = types.ModuleType("torch")
    torch.inference_mode = contextlib.nullcontext
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.setitem(sys.modules, "torch", torch)
    found.asked = asked  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("encoder", [(2,), (2, "single_label_classification")], indirect=True)
def test_an_encoder_gives_probabilities_in_batches_within_shards(
    encoder: Any, corpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = scored(corpus, HuggingFaceClassifier("some/encoder", revision="abc", batch_size=8))
    assert found["2"] == {"short": 0.5, "long": 0.5}
    assert found["1"]["long"] == pytest.approx(1 / (1 + math.exp(-13)), abs=1e-6)
    assert encoder.batches == [2, 1]
    assert encoder.asked == {"revision": "abc", "local_files_only": True}


@pytest.mark.parametrize("encoder", [(2, "multi_label_classification")], indirect=True)
def test_an_encoder_of_labels_that_do_not_exclude_each_other_gives_each_its_own(encoder: Any, corpus: Any) -> None:
    found = scored(corpus, HuggingFaceClassifier("some/encoder", "abc"))
    assert found["1"] == {"short": 0.5, "long": pytest.approx(1 / (1 + math.exp(-13)), abs=1e-6)}
    assert found["2"] == {"short": 0.5, "long": 0.5}


@pytest.mark.parametrize("encoder", [(2, "regression")], indirect=True)
def test_an_encoder_of_numbers_gives_them(encoder: Any, corpus: Any) -> None:
    assert scored(corpus, HuggingFaceClassifier("some/encoder", "abc"))["1"] == {"short": 0.0, "long": 13.0}


@pytest.mark.parametrize("encoder", [(1,)], indirect=True)
def test_an_encoder_with_one_output_gives_that(encoder: Any, corpus: Any) -> None:
    assert scored(corpus, HuggingFaceClassifier("some/encoder", "abc"))["1"] == {"score": 13.0}


# --- fastText


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb\r\n\tc\x0b\x00d\u2028e\u00a0f", "a b c d e f"),
        ("__label__good text", "label good text"),
        ("one</s> two", "one< /s> two"),
        (" \n ", ""),
    ],
)
def test_a_text_is_one_line_without_words_that_fasttext_obeys(text: str, line: str) -> None:
    assert one_line(text) == line


@pytest.mark.parametrize(("score", "told"), [(0.9, "add up to 1.800"), (0.3, "add up to 0.600")])
def test_a_library_whose_probabilities_do_not_add_up_is_refused_by_name(
    score: float, told: str, corpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        """As fasttext-wheel 0.9.2 on Python 3.12 with numpy 2, which gives every label the score of the best."""

        def predict(self, *arguments: Any) -> list[tuple[float, str]]:
            return [(score, "__label__good"), (score, "__label__bad")]

    module: Any = types.ModuleType("fasttext")
    module.load_model = lambda path: types.SimpleNamespace(f=Broken())
    monkeypatch.setitem(sys.modules, "fasttext", module)
    model = Path(corpus.path("model.bin"))
    model.write_bytes(b"")
    with pytest.raises(DataError, match=rf"fasttext.* gives labels probabilities that {told}"):
        scored(corpus, FasttextClassifier(str(model)))


def test_what_is_no_model_is_named(corpus: Any) -> None:
    with pytest.raises(DataError, match=r"no fastText model at .*nowhere/model\.bin"):
        scored(corpus, FasttextClassifier(corpus.path("nowhere")))
    model = Path(corpus.path("model.bin"))
    model.write_bytes(b"this is no model")
    with pytest.raises(DataError, match=r"model\.bin cannot be read as a fastText model by fasttext-predict"):
        scored(corpus, FasttextClassifier(str(model)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"labels": ("good", "good")}, "two labels or more"),
        ({"labels": ("good", "very bad")}, "'very bad' is not a single word"),
        ({"labels": ("good", "")}, "'' is not a single word"),
        ({"labels": ("good", "__label__bad")}, "is not a single word"),
        ({"val_frac": 1.0}, "cannot be held out"),
        ({"val_frac": 1e-9}, "holds out no document"),
        ({"sampling_rate": 0}, "sampling_rate is 0"),
        ({"sampling_rate": 1e-9}, "no document of .* is left to train the label 'good'"),
        ({"fasttext_args": {"seed": 3}}, "cannot set 'seed'"),
        ({"fasttext_args": {"autotuneDuration": 3}}, "cannot set 'autotuneDuration'"),
        ({"texts": ["", " \n"]}, "no document of .* is left to train"),
        ({"folder": "nowhere"}, "no shards below"),
    ],
)
def test_training_that_would_teach_nothing_is_refused(
    change: dict[str, Any], told: str, corpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = types.ModuleType("fasttext")  # Training is what must not be reached, but for the split's last case.
    module.train_supervised = lambda **arguments: types.SimpleNamespace(
        save_model=lambda path: Path(path).write_bytes(b"")
    )
    monkeypatch.setitem(sys.modules, "fasttext", module)
    settings = {"labels": ("good", "bad"), "texts": ["one", "two"], "folder": "in", "sampling_rate": 1.0, **change}
    corpus.write("in", {"a.jsonl": [{"id": text, "text": text} for text in settings.pop("texts")]})
    folder, rate = corpus.path(settings.pop("folder")), settings.pop("sampling_rate")
    datasets = [LabelledDocuments(folder, label, rate) for label in settings.pop("labels")]
    with pytest.raises(DataError, match=told):
        train_classifier(TrainClassifierConfig(datasets, **settings, output_path=corpus.path("out")))
    assert not Path(corpus.path("out"), "metrics.json").exists()
