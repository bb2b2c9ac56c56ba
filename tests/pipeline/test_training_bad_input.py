"""What cannot be trained is refused by name before Levanter is imported, which the tests' environment does not have."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.tokenizer_files import read_tokenizer
from marin_rules.pipeline.mixture import MixtureConfig, MixtureStage, mixture
from marin_rules.pipeline.train import train
from marin_rules.pipeline.train_dpo import train_dpo
from marin_rules.pipeline.training.checkpoints import seal
from marin_rules.pipeline.training.config import DpoConfig, Hyperparameters, TrainConfig
from marin_rules.pipeline.training.errors import NonFiniteLoss, TrainingError
from marin_rules.pipeline.training.metrics import Recorder
from marin_rules.pipeline.training.model import LlamaConfig
from marin_rules.pipeline.training.run import Devices, explained
from marin_rules.pipeline.training.throughput import Work

GIVEN = Hyperparameters(train_batch_size=8, num_train_steps=10, learning_rate=1e-3, precision="f32")
MODEL = LlamaConfig(max_seq_len=32, hidden_dim=32, intermediate_dim=64, num_layers=1, num_heads=2, num_kv_heads=2)
WORDS = [f"w{number}" for number in range(20)]


def write_tokenizer(folder: Path, words: list[str] = WORDS) -> Path:
    folder.mkdir(parents=True)
    vocabulary = {word: number for number, word in enumerate(words)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordLevel", "vocab": vocabulary}}))
    return folder


def write_tokens(folder: Path, words: list[str] = WORDS, **splits: int) -> Path:
    """The output of a tokenize step, as far as it is looked at before Levanter is."""
    tokenizer = read_tokenizer(str(write_tokenizer(folder / "tokenizer", words)))
    facts = {
        "format": "text",
        "splits": {split: {"tokens": tokens, "documents": 1} for split, tokens in splits.items()},
        "tokenizer": {"sha256": tokenizer.sha256, "vocabulary": tokenizer.vocabulary},
    }
    (folder / "tokens.json").write_text(json.dumps(facts))
    return folder


def write_model(folder: Path, words: list[str] | None = WORDS, **changes: Any) -> Path:
    """A Hugging Face folder without weights."""
    folder.mkdir()
    config = {
        "model_type": "llama",
        "vocab_size": 20,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": 32,
    }
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    if words is not None:
        (write_tokenizer(folder / "t", words) / "tokenizer.json").rename(folder / "tokenizer.json")
    return folder


def begin_with(tmp: Path, model: Path) -> TrainConfig:
    return TrainConfig(str(write_tokens(tmp / "tokens", train=1000)), None, GIVEN, str(model))


def swapped(tmp: Path) -> TrainConfig:
    tokens = write_tokens(tmp / "tokens", train=1000)
    (tokens / "tokenizer" / "tokenizer.json").write_text('{"model": {"vocab": {"other": 0}}}')
    return TrainConfig(str(tokens), MODEL, GIVEN)


def with_code(model: Path) -> Path:
    (model / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": [null, "somebody/else--mine.T"]}}')
    return model


def go_on_with(tmp: Path, shape: LlamaConfig, *, tokenizer: str | None = None, damage: bool = False) -> TrainConfig:
    """To begin with the checkpoint of a training of such a model."""
    tokens = write_tokens(tmp / "tokens", train=1000)
    digest = tokenizer or json.loads((tokens / "tokens.json").read_text())["tokenizer"]["sha256"]
    checkpoint = tmp / "before" / "checkpoints" / "step-9"
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata.json").write_text('{"step": 9}')
    (checkpoint / "array").write_text("numbers")
    seal(str(checkpoint))
    if damage:
        (checkpoint / "array").write_text("numberz")
    facts = {"model": {"config": asdict(shape)}, "data": {"tokenizer_sha256": digest}}
    (tmp / "before" / "training.json").write_text(json.dumps(facts))
    return TrainConfig(str(tokens), MODEL, GIVEN, initialize_from_checkpoint_path=str(tmp / "before"))


def mixed(tmp: Path, weights: dict[str, float], *, part_used: float = 1.0, **components: Path) -> TrainConfig:
    facts = {
        "components": {name: {"path": str(path)} for name, path in components.items()},
        "stages": [{"start_step": 0, "weights": weights}],
        "validation": [],
        "simulated_epoching": {"experiment_tokens": int(1000 * part_used), "target_tokens": 1000},
    }
    (tmp / "mixture.json").write_text(json.dumps(facts))
    return TrainConfig(str(tmp), MODEL, GIVEN)


BAD: dict[str, tuple[Callable[[Path], TrainConfig], str]] = {
    "no tokens": (lambda tmp: TrainConfig(str(tmp), MODEL, GIVEN), "has no tokens.json"),
    "a tokenizer that was changed": (swapped, "is not the one that the tokens beside it were made with"),
    "components of two tokenizers": (
        lambda tmp: mixed(
            tmp, {"a": 1.0}, a=write_tokens(tmp / "a", train=99), b=write_tokens(tmp / "b", ["x"], validation=9)
        ),
        "their tokenizers differ",
    ),
    "no weight above zero": (
        lambda tmp: mixed(tmp, {"a": 0.0}, a=write_tokens(tmp / "a", train=99)),
        "no weight of a is above 0",
    ),
    "a weight, and nothing to train on": (
        lambda tmp: mixed(tmp, {"a": 1.0}, a=write_tokens(tmp / "a", validation=99)),
        "has no tokens to train on, and a weight above 0",
    ),
    "less than a sequence": (
        lambda tmp: TrainConfig(str(write_tokens(tmp / "a", train=31)), MODEL, GIVEN),
        "has 31 tokens, which is less than a sequence of 32",
    ),
    "less than a sequence in simulated epoching": (
        lambda tmp: mixed(tmp, {"a": 1.0}, part_used=0.1, a=write_tokens(tmp / "a", train=319)),
        "has 9 sequences of 32, and simulated epoching uses 0.1 of them, which is not one: leave a out",
    ),
    "a vocabulary that is too small": (
        lambda tmp: begin_with(tmp, write_model(tmp / "m", vocab_size=19)),
        "knows 19 tokens, and the data's tokenizer has 20",
    ),
    "a model with another tokenizer": (
        lambda tmp: begin_with(tmp, write_model(tmp / "m", [*WORDS[1:], "w0"])),
        "is not the one that .* was tokenized with",
    ),
    "a model without a tokenizer": (lambda tmp: begin_with(tmp, write_model(tmp / "m", None)), "has no tokenizer"),
    "a model of another kind": (
        lambda tmp: begin_with(tmp, write_model(tmp / "m", model_type="gpt2")),
        "holds a model of type 'gpt2'; only 'llama'",
    ),
    "no model": (lambda tmp: begin_with(tmp, tmp / "nothing"), "is not a Hugging Face model"),
    "a model with code of its own": (
        lambda tmp: begin_with(tmp, write_model(tmp / "m", auto_map={"AutoConfig": "mine.Config"})),
        "m/config.json names code to be executed .*mine.Config.* is never executed here",
    ),
    "a tokenizer with code of its own": (
        lambda tmp: begin_with(tmp, with_code(write_model(tmp / "m"))),
        "m/tokenizer_config.json names code to be executed",
    ),
    "a model of another shape": (
        lambda tmp: replace(begin_with(tmp, write_model(tmp / "m")), model=replace(MODEL, num_layers=2)),
        "the model in .*/m has num_layers 1, and the config to train has 2",
    ),
    "biases": (
        lambda tmp: begin_with(tmp, write_model(tmp / "m", attention_bias=True)),
        "m holds a model with attention_bias, which Levanter would leave out",
    ),
    "heads of another size": (
        lambda tmp: begin_with(tmp, write_model(tmp / "m", head_dim=8)),
        "head_dim 8 times its 2 heads is not its hidden size 32",
    ),
    "an activation that the config does not say": (
        lambda tmp: replace(begin_with(tmp, write_model(tmp / "m", hidden_act="gelu")), model=MODEL),
        "has the activation 'gelu', which no config says",
    ),
    "rotary positions that the config does not say": (
        lambda tmp: replace(
            begin_with(tmp, write_model(tmp / "m", rope_scaling={"rope_type": "llama3", "factor": 32.0})),
            model=replace(MODEL, rope="llama3"),
        ),
        "with factor 32.0, and those of a config have 8",
    ),
    "layers one by one": (
        lambda tmp: replace(begin_with(tmp, write_model(tmp / "m")), model=replace(MODEL, scan_layers=False)),
        "needs scan_layers=True",
    ),
    "a checkpoint of another shape": (
        lambda tmp: go_on_with(tmp, replace(MODEL, num_layers=2)),
        "the model in .*/checkpoints/step-9 has num_layers 2, and the config to train has 1",
    ),
    "a checkpoint of other tokens": (
        lambda tmp: go_on_with(tmp, MODEL, tokenizer="other"),
        "was trained on the tokens of another tokenizer than the one that .*/tokens was tokenized with",
    ),
    "a damaged checkpoint": (
        lambda tmp: go_on_with(tmp, MODEL, damage=True),
        "step-9 cannot be used to begin with: array is damaged",
    ),
    "no checkpoint": (
        lambda tmp: TrainConfig(
            str(write_tokens(tmp / "a", train=99)), MODEL, GIVEN, initialize_from_checkpoint_path=str(tmp / "nothing")
        ),
        "has no checkpoint to begin with",
    ),
    "a sequence longer than the model's": (
        lambda tmp: TrainConfig(
            str(write_tokens(tmp / "a", train=99)),
            MODEL,
            Hyperparameters(train_batch_size=8, num_train_steps=10, learning_rate=1e-3, train_seq_len=64),
        ),
        "train_seq_len 64 is longer than the model's max_seq_len 32",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_it_is_refused_by_name(tmp_path: Path, what: str) -> None:
    make, message = BAD[what]
    with pytest.raises((TrainingError, DataError), match=message):
        train(make(tmp_path))


def test_preferences_need_a_template(tmp_path: Path) -> None:
    model = str(write_model(tmp_path / "m"))
    config = DpoConfig(str(tmp_path / "pairs"), model, GIVEN, output_path=str(tmp_path / "out"))
    with pytest.raises(TrainingError, match="has no chat template: give one as chat_template"):
        train_dpo(config)


def test_an_output_of_training_means_its_last_export(tmp_path: Path) -> None:
    """The path of a step is enough to begin with its model."""
    (tmp_path / "trained" / "hf").mkdir(parents=True)
    write_model(tmp_path / "trained" / "hf" / "step-9", vocab_size=7)
    (tmp_path / "trained" / "training.json").write_text('{"export": "hf/step-9"}')
    with pytest.raises(TrainingError, match=r"the model in .*/trained/hf/step-9 knows 7 tokens"):
        train(begin_with(tmp_path, tmp_path / "trained"))


def test_a_mixture_of_tokens_that_are_not_there_is_refused(tmp_path: Path) -> None:
    stages = [MixtureStage(0, {"a": 1.0})]
    config = MixtureConfig({"a": str(tmp_path / "nothing")}, stages, output_path=str(tmp_path / "out"))
    with pytest.raises(DataError, match=r"has no tokens\.json"):
        mixture(config)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (RuntimeError("Loss is NaN"), NonFiniteLoss, r"the loss of step 3 is not a number: losses before it: .*2 \(st"),
        (RuntimeError("Loss is Inf"), NonFiniteLoss, "the loss of step 3 is infinite"),
        (
            RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12 bytes"),
            TrainingError,
            "H100 is out of memory with a batch of 8, 2 sequences of 32 tokens on each of 4 devices. Lower per_device",
        ),
        (
            RuntimeError("Exception(s)", [ValueError("RESOURCE_EXHAUSTED: Failed to write: No space left on device")]),
            TrainingError,
            "could not be written: No space left on device. Make room .* resumes from its last whole checkpoint",
        ),
        (OSError(122, "Disk quota exceeded"), TrainingError, "could not be written: Disk quota exceeded"),
        (MemoryError("nothing left"), MemoryError, "nothing left"),
    ],
    ids=["not a number", "infinite", "out of memory", "full disk", "quota", "anything else"],
)
def test_failures_say_what_to_change(error: Exception, kind: type[Exception], message: str, tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "metrics.jsonl"), Work(10, 8, 32), resumed_from=None, say=lambda text: None)
    for step in range(3):
        recorder.trained(step, 2.0, None)
    found = explained(error, recorder, GIVEN, Devices("H100", 4, 1))
    assert type(found) is kind
    with pytest.raises(kind, match=message):
        raise found
