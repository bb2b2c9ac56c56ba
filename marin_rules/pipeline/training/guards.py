"""What is refused: while an experiment is planned if possible, otherwise by name before training starts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from marin_rules import VersionedValue
from marin_rules.pipeline.training.errors import TrainingError

if TYPE_CHECKING:
    from marin_rules.pipeline.training.config import Hyperparameters, Running
    from marin_rules.pipeline.training.model import LlamaConfig

_WHOLE = ("train_batch_size", "num_train_steps", "steps_per_eval", "steps_per_export")
_WHOLE_OR_NONE = ("train_seq_len", "max_eval_batches", "steps_per_hf_export")
_TYPE = "(?:f32|bf16|f16|float32|bfloat16|float16|full|half)"
_OF_ONE_USE = f"(?:p|params|c|compute|o|output)={_TYPE}"
_PRECISION = re.compile(f"{_TYPE}|{_OF_ONE_USE}(?:,{_OF_ONE_USE})*")
"""As jmp reads it."""

_SCHEDULES = ("cosine", "linear", "constant", "inv_sqrt", "inv")


def check_hyperparameters(given: Hyperparameters) -> None:
    """Refuse numbers with which nothing is learnt, or of the wrong kind."""
    for name in (*_WHOLE, *_WHOLE_OR_NONE):
        value = getattr(given, name)
        if value is None and name in _WHOLE_OR_NONE:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise TrainingError(f"{name} {value!r} must be a whole number of at least 1")
    if given.num_train_steps < 2:
        raise TrainingError("num_train_steps 1 trains nothing worth keeping: Levanter exports no model of one step")
    _check_number("learning_rate", given.learning_rate, above=0)
    if given.max_grad_norm is not None:
        _check_number("max_grad_norm", given.max_grad_norm, above=0)
    _check_number("epsilon", given.epsilon, above=0)
    for name in ("seed", "data_seed"):
        if (seed := getattr(given, name)) is not None or name == "seed":
            _check_seed(name, seed)
    _check_precision(given.precision)
    for name in ("weight_decay", "z_loss_weight", "min_lr_ratio", "warmup"):
        _check_number(name, getattr(given, name), least=0)
    if given.decay is not None:
        _check_number("decay", given.decay, least=0)
    for name in ("beta1", "beta2", "ema_beta"):
        if (value := getattr(given, name)) is not None:
            _check_number(name, value, least=0, below=1)
    if given.lr_schedule not in _SCHEDULES:
        raise TrainingError(f"lr_schedule {given.lr_schedule!r} is none of {', '.join(_SCHEDULES)}")
    for name, value in (("warmup", given.warmup), ("decay", given.decay or 0)):
        if value > 1 and value != int(value):
            raise TrainingError(f"{name} {value!r} is neither a fraction nor a number of steps: use {round(value)}")
    warmup, decay = (_steps(value, given.num_train_steps) for value in (given.warmup, given.decay or 0))
    if warmup + decay > given.num_train_steps:
        raise TrainingError(
            f"warmup {given.warmup} and decay {given.decay} are {warmup + decay} steps, but num_train_steps is"
            f" {given.num_train_steps}: numbers below 1 are fractions, others are steps"
        )


def check_running(running: Running) -> None:
    """Refuse numbers with which a run cannot be monitored."""
    # To Levanter, an interval of 0 is none at all.
    _check_number("checkpoint_minutes", running.checkpoint_minutes, above=0)
    _check_number("progress_seconds", running.progress_seconds, least=0)
    each: object = running.per_device_parallelism
    each = each.value if isinstance(each, VersionedValue) else each
    if not isinstance(each, int) or isinstance(each, bool) or (each < 1 and each != -1):
        raise TrainingError(f"per_device_parallelism {each!r} must be at least 1, or -1 for all")


def _check_number(
    name: str, value: float, *, least: float = -math.inf, above: float = -math.inf, below: float = math.inf
) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and value >= least and above < value < below:
        return
    wanted = [f"at least {least:g}"] * math.isfinite(least) + [f"above {above:g}"] * math.isfinite(above)
    wanted += [f"below {below:g}"] * math.isfinite(below)
    raise TrainingError(f"{name} {value!r} must be a number {' and '.join(wanted)}".rstrip())


def _check_seed(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
        raise TrainingError(f"{name} {value!r} must be a whole number from 0 to {(1 << 32) - 1}")


def _check_precision(text: object) -> None:
    if not isinstance(text, str) or not _PRECISION.fullmatch(text):
        raise TrainingError(
            f"precision {text!r} is not known: write a type (float32, bfloat16, float16, or f32, bf16, f16), or those"
            " of parameters and of computation, as in 'p=f32,c=bfloat16'"
        )


def _steps(value: float, steps: int) -> int:
    return int(value * steps) if isinstance(value, float) and value <= 1 else int(value)


def check_sequence_length(given: Hyperparameters, model: LlamaConfig) -> int:
    """Tokens a sequence."""
    length = given.train_seq_len or model.max_seq_len
    if length < 2:
        raise TrainingError(f"a sequence of {length} token has nothing to predict: give a longer train_seq_len")
    if length > model.max_seq_len:
        raise TrainingError(
            f"train_seq_len {length} is longer than the model's max_seq_len {model.max_seq_len}:"
            " shorten it, or give the model a longer one"
        )
    return length


def check_exportable(model: LlamaConfig) -> None:
    """Refuse shapes that Hugging Face's `llama` does not have: the training would fail at its end, or its model could
    not be loaded."""
    for name in ("use_qk_norm", "hybrid_norm", "input_embedding_norm"):
        if getattr(model, name):
            raise TrainingError(f"a model with {name} cannot be exported for Hugging Face: leave it False")
    if model.head_size * model.num_heads != model.hidden_dim:
        raise TrainingError(
            f"a model whose head_dim {model.head_size} times num_heads {model.num_heads} is not its hidden_dim"
            f" {model.hidden_dim} cannot be exported for Hugging Face: Levanter writes and reads no head_dim"
        )


def check_batch(batch: int, devices: int, per_device_parallelism: int = -1) -> None:
    """Refuse a batch that cannot be divided evenly among devices."""
    each = 1 if per_device_parallelism == -1 else per_device_parallelism
    if batch % (devices * each):
        possible = max(devices * each, batch - batch % (devices * each))
        sequences = f", {each} at a time" if each > 1 else ""
        raise TrainingError(
            f"train_batch_size {batch} cannot be divided over {devices} device{'s' * (devices > 1)}{sequences}:"
            f" {possible} would"
        )


def check_stages(starts: Sequence[int], batch: int, block_size: int) -> None:
    """Refuse stages of a mixture that would begin in the middle of a block of sequences."""
    each = block_size // math.gcd(batch, block_size)
    for start in starts:
        if start % each:
            near = start - start % each
            raise TrainingError(
                f"a stage of the mixture begins at step {start}, and with train_batch_size {batch} and a block_size of"
                f" {block_size} stages can only begin every {each} steps: use {near} or {near + each}, or a block_size"
                f" of {math.gcd(start * batch, 1 << 15)}"
            )


def check_preferences(
    beta: float, validation_fraction: float, z_loss_weight: float = 0.0, ema_beta: float | None = None
) -> None:
    """Refuse preferences from which nothing is learnt, and what would have no effect or a wrong one."""
    if z_loss_weight:
        raise TrainingError(f"z_loss_weight {z_loss_weight!r} has no effect on preferences: leave it 0")
    if ema_beta is not None:
        raise TrainingError(
            f"ema_beta {ema_beta!r} cannot be used on preferences: Levanter begins the average with random weights, not"
            " with those of the model, and would evaluate and export a mixture of both: leave it None"
        )
    _check_number("beta", beta, above=0)
    _check_number("validation_fraction", validation_fraction, least=0, below=1)


def check_vocabulary(model_vocabulary: int, tokenizer_vocabulary: int, where: str) -> None:
    """Refuse a model that has no row for some tokens."""
    if model_vocabulary < tokenizer_vocabulary:
        raise TrainingError(
            f"the model in {where} knows {model_vocabulary} tokens, and the data's tokenizer has"
            f" {tokenizer_vocabulary}: tokenize the data with the model's own tokenizer"
        )


def check_initialization(model: LlamaConfig | None, from_hf: object, from_checkpoint: object) -> None:
    """Refuse two starting points, or a model without a shape."""
    if from_hf is not None and from_checkpoint is not None:
        raise TrainingError("initialize_from_hf and initialize_from_checkpoint_path are two starting points: give one")
    if model is None and from_hf is None:
        raise TrainingError("no model: give its config, or initialize_from_hf, which brings one")
    if model is not None:
        check_exportable(model)
    if model is not None and from_hf is not None and not model.scan_layers:
        raise TrainingError(
            "a model that begins with a Hugging Face folder needs scan_layers=True, for Levanter reads such weights"
            " into no other. Or give no config: the shape comes with initialize_from_hf"
        )


def check_device(wanted: str, found: str) -> None:
    """Refuse to train for days on a CPU what was meant for a GPU or a TPU."""
    names = {"gpu": "GPU", "cuda": "GPU", "rocm": "GPU", "tpu": "TPU", "cpu": "CPU"}
    if wanted != "cpu" and names.get(found) != names[wanted]:
        raise TrainingError(
            f"a {names[wanted]} was asked for, but JAX finds only a {names.get(found, found)} here: run the step on a"
            f" cluster that has one, check that the environment's JAX supports it, or ask for"
            " ResourceConfig.with_cpu()"
        )
