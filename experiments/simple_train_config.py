"""How to train, in the fields of Marin's `SimpleTrainConfig`: what `default_train` takes besides data and model."""

from dataclasses import dataclass, fields
from typing import Literal

from marin_rules import ExecutorStep, InputName, ResourceConfig
from marin_rules.pipeline.training.config import Hyperparameters, Running, WandbConfig

type Model = ExecutorStep | InputName | str
"""Where a model is: the step that makes it, a place in its output, or a path."""


@dataclass(frozen=True)
class SimpleTrainConfig:
    """Everything but data and model. `Hyperparameters` explains the fields that change the result."""

    resources: ResourceConfig
    train_batch_size: int
    num_train_steps: int
    learning_rate: float
    train_seq_len: int | None = None
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    max_grad_norm: float | None = 1.0
    warmup: int | float = 0.01
    decay: int | float | None = None
    lr_schedule: Literal["cosine", "linear", "constant", "inv_sqrt", "inv"] = "cosine"
    min_lr_ratio: float = 0.1
    z_loss_weight: float = 0.0
    ema_beta: float | None = None
    precision: str = "p=f32,c=bfloat16"
    seed: int = 0
    data_seed: int | None = None
    steps_per_eval: int = 1000
    max_eval_batches: int | None = None
    steps_per_export: int = 10_000
    steps_per_hf_export: int | None = None

    initialize_from_hf: Model | None = None
    initialize_from_checkpoint_path: Model | None = None

    per_device_parallelism: int = -1
    checkpoint_minutes: float = 10.0
    wandb: WandbConfig | None = None
    tensorboard: bool = False

    def hyperparameters(self) -> Hyperparameters:
        """What is versioned."""
        return Hyperparameters(**{field.name: getattr(self, field.name) for field in fields(Hyperparameters)})

    def running(self) -> Running:
        """What is not."""
        return Running(
            device=self.resources.device.kind,
            per_device_parallelism=self.per_device_parallelism,
            checkpoint_minutes=self.checkpoint_minutes,
            wandb=self.wandb,
            tensorboard=self.tensorboard,
        )
