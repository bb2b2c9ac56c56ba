"""The other side of the benchmark of training: a step, with tokens that are there. STEPS says how many steps it has."""

from __future__ import annotations

import os
from typing import Any

from marin_rules import ExecutorStep, ResourceConfig, executor_main, remote, versioned
from marin_rules.pipeline.train import train
from marin_rules.pipeline.training.config import Hyperparameters, TrainConfig
from marin_rules.pipeline.training.model import LlamaConfig

MODEL = LlamaConfig(
    max_seq_len=128,
    hidden_dim=128,
    intermediate_dim=336,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    gradient_checkpointing=False,
    scan_layers=False,
)
GIVEN: dict[str, Any] = {"train_batch_size": 16, "learning_rate": 3e-3, "precision": "f32", "warmup": 5}


def hyperparameters(steps: int) -> Hyperparameters:
    return Hyperparameters(num_train_steps=steps, steps_per_eval=steps, **GIVEN)


if __name__ == "__main__":
    config = TrainConfig(os.path.abspath("tokens"), MODEL, versioned(hyperparameters(int(os.environ["STEPS"]))))
    resources = ResourceConfig.with_cpu(cpu=os.cpu_count() or 1, ram="2g")
    step = ExecutorStep("model", remote(train, resources=resources, pip_dependency_groups=["train"]), config)
    executor_main(steps=[step])
