"""How to train on conversations, and on preferences: `SimpleTrainConfig` with the defaults that suit them.

A model to start from is required: `initialize_from_hf` (a folder with the model that the conversations were tokenized
for), or for conversations `initialize_from_checkpoint_path`.
"""

from dataclasses import dataclass
from typing import Literal

from experiments.simple_train_config import SimpleTrainConfig


@dataclass(frozen=True)
class SimpleSFTConfig(SimpleTrainConfig):
    """A learning rate that rises for 3% of the steps, and then falls linearly to zero; no weight decay."""

    weight_decay: float = 0.0
    warmup: int | float = 0.03
    lr_schedule: Literal["cosine", "linear", "constant", "inv_sqrt", "inv"] = "linear"
    min_lr_ratio: float = 0.0


@dataclass(frozen=True)
class SimpleDPOConfig(SimpleSFTConfig):
    """The same, for preferences."""

    beta: float = 0.1
    validation_fraction: float = 0.1
    chat_template: str | None = None
