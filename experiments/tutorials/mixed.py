"""Python steps and shell rules in one experiment.

    snakemake --config experiment=experiments/tutorials/mixed.py prefix=out

`count_words` is not a Python function: the rule of that name in mixed.smk, beside this file, runs it with shell
tools. Its output path is hash-named like any other, and it runs once, under a lease, like any other step.
"""

import json
import os
from dataclasses import dataclass

import fsspec

from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, SnakemakeRule, executor_main, versioned

TEXT = "the quick brown fox jumps over the lazy dog while the cat looks on"


@dataclass(frozen=True)
class TextConfig:
    """The text to write."""

    text: str
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class CountConfig:
    """What the shell rule needs; it sees these fields as `{params.config[...]}`."""

    text_file: str
    at_least: int


@dataclass(frozen=True)
class TopConfig:
    """The counts to read."""

    counts_file: str
    output_path: str = THIS_OUTPUT_PATH


def write_text(config: TextConfig) -> None:
    with fsspec.open(os.path.join(config.output_path, "text.txt"), "w") as file:
        file.write(config.text + "\n")


def find_top_word(config: TopConfig) -> dict[str, int]:
    with fsspec.open(config.counts_file, "r") as file:
        counts = {word: int(count) for count, word in (line.split() for line in file)}
    word = max(counts, key=lambda word: counts[word])
    with fsspec.open(os.path.join(config.output_path, "top.json"), "w") as file:
        json.dump({word: counts[word]}, file)
    print(f"most frequent: {word!r}, {counts[word]} times")
    return {word: counts[word]}


text = ExecutorStep(name="mixed/text", fn=write_text, config=TextConfig(text=versioned(TEXT)))

counts = ExecutorStep(
    name="mixed/counts",
    description="Word counts, by sort and uniq.",
    fn=SnakemakeRule("count_words"),
    config=CountConfig(text_file=text / "text.txt", at_least=versioned(1)),
)

top = ExecutorStep(name="mixed/top", fn=find_top_word, config=TopConfig(counts_file=counts / "counts.txt"))

if __name__ == "__main__":
    executor_main(steps=[top], description="Shell tools between Python steps.")
