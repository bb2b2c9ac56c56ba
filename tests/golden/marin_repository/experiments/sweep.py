"""A sweep over learning rates, on the clean pages: ExecutorSteps that depend on StepSpecs."""

from experiments.defaults import default_tokenize, default_train
from experiments.wiki import wiki_step
from marin.execution.executor import executor_main

tokens = default_tokenize("wiki", wiki_step().as_executor_step())
models = [default_train(f"wiki-{rate}", tokens, rate) for rate in (0.1, 0.3, 0.5)]

if __name__ == "__main__":
    executor_main(models, "How fast may it learn?")
