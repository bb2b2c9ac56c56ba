"""Train a real, tiny Llama on the CPU in minutes: presidents' addresses to tokens, model, and evaluation.

    snakemake --config experiment=experiments/tutorials/train_tiny_model_cpu.py prefix=out

The text is the State of the Union addresses, a package of the npm registry; no other network is needed. The model beats
a bigram model of the same tokens, which the step computes for comparison: see `report/baselines.csv` in its output.
"""

from experiments.defaults import (
    default_eval,
    default_tasks,
    default_tokenize,
    default_train,
    default_train_tokenizer,
)
from experiments.evals.task_configs import made_tasks
from experiments.llama import llama_tutorial
from experiments.simple_train_config import SimpleTrainConfig
from experiments.tutorials.addresses import addresses
from marin_rules import ResourceConfig, executor_main

tokenizer = default_train_tokenizer("addresses", addresses / "train", 1024)
tokens = default_tokenize("addresses", addresses / "train", tokenizer)
held_out = default_tokenize("addresses-held-out", addresses / "held_out", tokenizer, is_validation=True)

train_config = SimpleTrainConfig(
    resources=ResourceConfig.with_cpu(cpu=2, ram="4g"),
    train_batch_size=16,
    num_train_steps=400,
    learning_rate=3e-3,
    beta2=0.98,
    warmup=20,
    precision="f32",
    steps_per_eval=100,
)
model = default_train("tiny", tokens, llama_tutorial, train_config, validation_sets={"held_out": held_out})

tasks = default_tasks("tasks/addresses", addresses / "held_out")
evaluation = default_eval(
    model, made_tasks(tasks, ["word_order", "sentence_endings"]), held_out={"addresses": addresses / "held_out"}
)

if __name__ == "__main__":
    executor_main(steps=[evaluation], description="A tiny Llama, trained and evaluated on the CPU.")
