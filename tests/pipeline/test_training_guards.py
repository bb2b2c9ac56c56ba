"""Configs that no model can be trained with are refused, by the name of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from marin_rules.pipeline.training.config import Hyperparameters, Running
from marin_rules.pipeline.training.errors import TrainingError
from marin_rules.pipeline.training.guards import (
    check_batch,
    check_device,
    check_initialization,
    check_preferences,
    check_sequence_length,
    check_stages,
    check_vocabulary,
)
from marin_rules.pipeline.training.model import LlamaConfig

GOOD: dict[str, Any] = {"train_batch_size": 8, "num_train_steps": 100, "learning_rate": 1e-3}


@pytest.mark.parametrize(
    "change",
    [
        {"train_batch_size": 0},
        {"train_batch_size": 2.5},
        {"train_batch_size": True},
        {"num_train_steps": 1},
        {"learning_rate": 0},
        {"learning_rate": float("nan")},
        {"learning_rate": "1e-3"},
        {"weight_decay": -0.1},
        {"beta2": 1.0},
        {"ema_beta": 1.5},
        {"warmup": -1},
        {"warmup": 1.5},
        {"decay": 20.5},
        {"max_eval_batches": 0},
        {"steps_per_export": 0},
        {"train_seq_len": 0},
        {"lr_schedule": "cosinus"},
        {"max_grad_norm": -1.0},
        {"max_grad_norm": 0},
        {"epsilon": 0},
        {"seed": -1},
        {"seed": 1.5},
        {"data_seed": "a"},
        {"precision": "float17"},
        {"precision": "p=f32,c=bf17"},
        {"precision": "f32,bf16"},
        {"precision": "=f32"},
    ],
    ids=str,
)
def test_bad_hyperparameters(change: dict[str, Any]) -> None:
    with pytest.raises(TrainingError, match=next(iter(change))):
        Hyperparameters(**{**GOOD, **change})


@pytest.mark.parametrize("precision", ["f32", "bfloat16", "p=f32,c=bfloat16", "params=full,compute=half,output=f32"])
def test_precisions(precision: str) -> None:
    assert Hyperparameters(**GOOD, precision=precision).precision == precision
    assert Hyperparameters(**GOOD, max_grad_norm=None).max_grad_norm is None


@pytest.mark.parametrize(
    "change",
    [
        {"checkpoint_minutes": -1.0},
        {"checkpoint_minutes": 0},
        {"progress_seconds": float("nan")},
        {"per_device_parallelism": 0},
    ],
    ids=str,
)
def test_bad_ways_to_run(change: dict[str, Any]) -> None:
    with pytest.raises(TrainingError, match=next(iter(change))):
        Running(**change)


def test_preferences() -> None:
    check_preferences(0.1, 0.0)
    with pytest.raises(TrainingError, match="beta -1"):
        check_preferences(-1, 0.1)
    with pytest.raises(TrainingError, match="validation_fraction 1"):
        check_preferences(0.1, 1.0)


def test_a_schedule_must_fit_into_the_run() -> None:
    Hyperparameters(**GOOD, warmup=20, decay=0.8)
    Hyperparameters(**GOOD, warmup=0.2 * 100, decay=0.8)
    with pytest.raises(TrainingError, match=r"warmup 30 and decay 0\.8 are 110 steps"):
        Hyperparameters(**GOOD, warmup=30, decay=0.8)


@pytest.mark.parametrize(
    "change",
    [{"num_heads": 3, "num_kv_heads": 2}, {"hidden_dim": 30, "num_heads": 4}, {"num_layers": 0}, {"rope": "yarn"}],
    ids=str,
)
def test_bad_shapes(change: dict[str, Any]) -> None:
    with pytest.raises(TrainingError, match=next(iter(change))):
        LlamaConfig(**{"hidden_dim": 32, "num_heads": 4, "num_kv_heads": 4, **change})


def test_sequences_are_as_long_as_the_model_unless_said() -> None:
    model = LlamaConfig(max_seq_len=64)
    assert check_sequence_length(Hyperparameters(**GOOD), model) == 64
    assert check_sequence_length(Hyperparameters(**GOOD, train_seq_len=32), model) == 32
    with pytest.raises(TrainingError, match="train_seq_len 65 is longer than the model's max_seq_len 64"):
        check_sequence_length(Hyperparameters(**GOOD, train_seq_len=65), model)


@pytest.mark.parametrize(("batch", "devices", "each"), [(8, 8, -1), (8, 4, 2), (1, 1, -1)])
def test_batches_that_divide(batch: int, devices: int, each: int) -> None:
    check_batch(batch, devices, each)


@pytest.mark.parametrize(("batch", "devices", "each", "would"), [(9, 4, -1, 8), (8, 4, 4, 16), (3, 4, -1, 4)], ids=str)
def test_batches_that_do_not(batch: int, devices: int, each: int, would: int) -> None:
    with pytest.raises(TrainingError, match=f"{batch} cannot be divided over {devices} devices.*: {would} would"):
        check_batch(batch, devices, each)


def test_stages_begin_with_blocks_of_sequences() -> None:
    check_stages([0, 128, 512], 16, 2048)
    check_stages([0, 75], 16, 16)
    with pytest.raises(TrainingError, match=r"at step 75, .* every 128 steps: use 0 or 128, or a block_size of 16"):
        check_stages([0, 75], 16, 2048)
    with pytest.raises(TrainingError, match=r"at step 3, .* every 2048 steps"):
        check_stages([3], 3, 2048)


def test_devices() -> None:
    check_device("cpu", "gpu")
    check_device("gpu", "gpu")
    check_device("tpu", "tpu")
    with pytest.raises(TrainingError, match="a GPU was asked for, but JAX finds only a CPU"):
        check_device("gpu", "cpu")
    with pytest.raises(TrainingError, match="a TPU was asked for, but JAX finds only a GPU"):
        check_device("tpu", "gpu")


def test_vocabulary_and_beginnings() -> None:
    check_vocabulary(512, 512, "m")
    with pytest.raises(TrainingError, match="knows 511 tokens, and the data's tokenizer has 512"):
        check_vocabulary(511, 512, "m")
    with pytest.raises(TrainingError, match="two starting points"):
        check_initialization(LlamaConfig(), "a", "b")
    with pytest.raises(TrainingError, match="no model"):
        check_initialization(None, None, "b")
    check_initialization(None, "a", None)
    check_initialization(LlamaConfig(scan_layers=False), None, "b")
    with pytest.raises(TrainingError, match="needs scan_layers=True"):
        check_initialization(LlamaConfig(scan_layers=False), "a", None)


@pytest.mark.parametrize(
    ("shape", "vocabulary", "published"),
    [
        ({"hidden_dim": 4096, "intermediate_dim": 14336, "num_kv_heads": 8}, 128_256, 8_030_261_248),
        (
            {
                "hidden_dim": 2048,
                "intermediate_dim": 8192,
                "num_layers": 16,
                "num_kv_heads": 8,
                "tie_word_embeddings": True,
            },
            128_256,
            1_235_814_400,
        ),
    ],
    ids=["Llama 3 8B", "Llama 3.2 1B"],
)
def test_parameters_are_those_of_published_models(shape: dict[str, Any], vocabulary: int, published: int) -> None:
    assert LlamaConfig(**shape).parameters(vocabulary) == published


@pytest.mark.parametrize(
    "change",
    [{"use_qk_norm": True}, {"hybrid_norm": True}, {"input_embedding_norm": True}, {"head_dim": 16}],
    ids=str,
)
def test_what_could_not_be_exported_at_the_end_is_refused_at_the_beginning(change: dict[str, Any]) -> None:
    with pytest.raises(TrainingError, match=f"{next(iter(change))}.* cannot be exported"):
        check_initialization(LlamaConfig(hidden_dim=32, num_heads=4, num_kv_heads=2, **change), None, None)
    check_initialization(LlamaConfig(hidden_dim=32, num_heads=4, num_kv_heads=2, head_dim=8), None, None)


def test_a_sequence_has_something_to_predict() -> None:
    with pytest.raises(TrainingError, match="nothing to predict"):
        check_sequence_length(Hyperparameters(**GOOD, train_seq_len=1), LlamaConfig(max_seq_len=8))
