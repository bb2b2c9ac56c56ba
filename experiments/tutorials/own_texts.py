"""A model of your own texts: a folder of `.txt` and `.md` files, a part held out, a tokenizer, a model, its scores.

    snakemake --config experiment=experiments/tutorials/own_texts.py prefix=out

Start from a copy of this file. `texts` is a folder in the working directory with a hundred files or more. The version
covers the path of the folder, but not what is in it: after adding files, rename the folder, or force the steps that
read it with `--config force=documents/mine`.
"""

from experiments.defaults import (
    default_eval,
    default_read_dump,
    default_sample,
    default_tasks,
    default_tokenize,
    default_train,
    default_train_tokenizer,
)
from experiments.evals.task_configs import made_tasks
from experiments.llama import llama_tutorial
from experiments.simple_train_config import SimpleTrainConfig
from marin_rules import ResourceConfig, executor_main

documents = default_read_dump("documents/mine", "texts", "text_files")
held_out = default_sample("documents/mine-held-out", documents, 0.1)
to_learn = default_sample("documents/mine-to-learn", documents, 0.1, rest=True)

tokenizer = default_train_tokenizer("mine", to_learn, 1024)
tokens = default_tokenize("mine", to_learn, tokenizer)
held_out_tokens = default_tokenize("mine-held-out", held_out, tokenizer, is_validation=True)

model = default_train(
    "mine",
    tokens,
    llama_tutorial,
    SimpleTrainConfig(
        resources=ResourceConfig.with_cpu(cpu=2, ram="4g"),
        train_batch_size=16,
        num_train_steps=200,
        learning_rate=3e-3,
        warmup=20,
        precision="f32",
        steps_per_eval=50,
    ),
    validation_sets={"held_out": held_out_tokens},
)
tasks = made_tasks(default_tasks("tasks/mine", held_out), ["word_order", "sentence_endings"])
scores = default_eval(model, tasks, held_out={"mine": held_out}, offline=True)

if __name__ == "__main__":
    executor_main(steps=[scores], description="A tiny model of your own texts.")
