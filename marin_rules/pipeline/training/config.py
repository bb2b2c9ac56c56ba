"""What to train, on what, and how: the configs of the training steps.

`Hyperparameters` holds all that changes the trained model or what is reported of it, and is versioned as a whole by
`experiments/defaults.py`. The rest (devices, logging, how often a checkpoint is written) changes no path.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.training.model import LlamaConfig

type Device = Literal["cpu", "gpu", "tpu"]


@dataclass(frozen=True)
class Hyperparameters:
    """How a model is trained, in the terms of Marin's `SimpleTrainConfig`."""

    train_batch_size: int
    """Sequences a step, over all devices."""

    num_train_steps: int
    learning_rate: float
    train_seq_len: int | None = None
    """Tokens a sequence; None is the model's `max_seq_len`."""

    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    max_grad_norm: float | None = 1.0
    warmup: int | float = 0.01
    """Steps of a rising learning rate: a number of them, or a fraction below 1."""

    decay: int | float | None = None
    """Steps of a falling learning rate at the end; None is all that follow the warm-up."""

    lr_schedule: Literal["cosine", "linear", "constant", "inv_sqrt", "inv"] = "cosine"
    min_lr_ratio: float = 0.1
    """The last learning rate, as a fraction of the highest."""

    z_loss_weight: float = 0.0
    ema_beta: float | None = None
    """Evaluate and export a moving average of the weights, with this memory."""

    precision: str = "p=f32,c=bfloat16"
    """Types of parameters and of computation, as jmp writes them; "f32" for both on a CPU."""

    seed: int = 0
    data_seed: int | None = None
    """Of the order of the data; None takes `seed`."""

    steps_per_eval: int = 1000
    max_eval_batches: int | None = None
    """How much of each validation set is evaluated, in batches of `train_batch_size`; None is all of it."""

    steps_per_export: int = 10_000
    """How often a checkpoint is kept for good. The last one always is."""

    steps_per_hf_export: int | None = None
    """How often the model is exported for Hugging Face; None is `steps_per_export`. At the end it always is."""

    def __post_init__(self) -> None:
        from marin_rules.pipeline.training.guards import check_hyperparameters

        check_hyperparameters(self)


@dataclass(frozen=True)
class WandbConfig:
    """Where Weights & Biases shows the run. The key is in the variable WANDB_API_KEY."""

    project: str = "marin"
    entity: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    mode: Literal["online", "offline"] | None = None


@dataclass(frozen=True)
class Running:
    """With what, and how closely watched. Nothing here changes a model of text."""

    device: Device = "cpu"
    """What the step was given; training does not start if it is missing."""

    per_device_parallelism: int = -1
    """Sequences at a time on a device; the rest of a batch follows. -1 is all of them at once. Only of conversations it
    changes the model: each piece of a batch weighs the same, however many tokens of answers it has."""

    checkpoint_minutes: float = 10.0
    """How much work a kill may cost at most."""

    progress_seconds: float = 10.0
    """How often a line reports progress."""

    wandb: WandbConfig | None = None
    tensorboard: bool = False
    """Whether to write `tensorboard/`, beside what is always written."""

    tags: tuple[str, ...] = ()
    """Words to find the run by, in `training.json` and in Weights & Biases."""

    def __post_init__(self) -> None:
        from marin_rules.pipeline.training.guards import check_running

        check_running(self)


@dataclass(frozen=True)
class TrainConfig:
    """A language model from tokens: from scratch, or from the weights of another."""

    data_path: str | InputName
    """The output of a tokenize or a mixture step."""

    model: LlamaConfig | None
    """None only with `initialize_from_hf`, whose shape it then has."""

    hyperparameters: Hyperparameters
    initialize_from_hf: str | InputName | None = None
    """A Hugging Face folder with weights and tokenizer to begin with; of a training step's output, its last export."""

    initialize_from_checkpoint_path: str | InputName | None = None
    """The output of a training step, or one of its checkpoints, whose weights to begin with. The optimizer starts
    afresh.
    """

    running: Running = field(default_factory=Running)
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class DpoConfig:
    """A model that learns to prefer some answers to others (direct preference optimization)."""

    preferences_path: str | InputName
    """Folder of shards of preferences: `prompt`, `chosen` and `rejected` messages (docs/data.md)."""

    initialize_from_hf: str | InputName
    """A Hugging Face folder, or a training step's output: where the policy begins, and the reference that it is
    compared with."""

    hyperparameters: Hyperparameters
    beta: float = 0.1
    """How much it costs to leave the reference."""

    validation_fraction: float = 0.1
    """How much of the preferences is held out."""

    chat_template: str | None = None
    """Instead of the tokenizer's. Answers stand in a `{% generation %}` block."""

    running: Running = field(default_factory=Running)
    output_path: str = THIS_OUTPUT_PATH
