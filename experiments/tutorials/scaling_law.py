"""A scaling law of tiny models: a sweep over sizes and amounts of data, the law behind it, and a check of it.

    snakemake --config experiment=experiments/tutorials/scaling_law.py prefix=out
    snakemake --config experiment=experiments/tutorials/scaling_law.py prefix=out --report report.html

Models of 40,000 to 800,000 parameters are trained on 100,000 to 800,000 tokens of presidents' addresses: 16 runs, about
ten minutes on two cores. L = A / N^a + B / D^b + E is fitted to the losses of all but the most expensive one, which it
then has to predict.
"""

from typing import Any

from experiments.defaults import default_mixture, default_scaling_law, default_train
from experiments.simple_train_config import SimpleTrainConfig
from experiments.tutorials.train_tiny_model_cpu import held_out, tokens
from marin_rules import ExecutorStep, ResourceConfig, executor_main
from marin_rules.pipeline.mixture import lm_mixture_data_config
from marin_rules.pipeline.training.model import LlamaConfig

SEQUENCE, BATCH = 64, 8
LEARNING_RATES = {16: 1.4e-2, 32: 1e-2, 64: 7e-3, 128: 5e-3}
"""By hidden size: narrow models want higher ones."""

STEPS = (200, 400, 800, 1600)
LARGEST = (128, 1600)
"""The hidden size and the steps of the run that the law has to predict."""

data = default_mixture(
    "scaling_law", lm_mixture_data_config({"train": tokens, "held_out": held_out}, {"train": 1.0, "held_out": 0.0})
)


def trained(hidden: int, steps: int) -> ExecutorStep[Any]:
    """One run of the sweep, with a learning rate that falls to the end of its own steps."""
    return default_train(
        f"scaling_law/{hidden}-{steps}",
        data,
        LlamaConfig(
            max_seq_len=SEQUENCE,
            hidden_dim=hidden,
            intermediate_dim=4 * hidden,
            num_layers=2,
            num_heads=4,
            num_kv_heads=4,
            gradient_checkpointing=False,
            scan_layers=False,
        ),
        SimpleTrainConfig(
            resources=ResourceConfig.with_cpu(cpu=1, ram="4g"),
            train_batch_size=BATCH,
            num_train_steps=steps,
            learning_rate=LEARNING_RATES[hidden],
            beta2=0.98,
            warmup=0.1,
            precision="f32",
            steps_per_eval=steps,
        ),
        tags=["scaling_law"],
    )


runs = {(hidden, steps): trained(hidden, steps) for hidden in LEARNING_RATES for steps in STEPS}
largest = runs.pop(LARGEST)
law = default_scaling_law(
    "scaling_law/law",
    {f"{hidden}-{steps}": run for (hidden, steps), run in runs.items()},
    held_out={"largest": largest},
)

if __name__ == "__main__":
    executor_main(steps=[law], description="A scaling law of tiny models.")
