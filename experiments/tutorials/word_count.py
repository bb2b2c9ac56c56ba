"""Words counted in 200 files by 16 tasks: on a laptop as many at a time as it has cores, on Slurm as a job array.

    snakemake --config experiment=experiments/tutorials/word_count.py prefix=out                   # all of it here
    snakemake --config experiment=experiments/tutorials/word_count.py prefix=out --profile slurm   # on Slurm

`count_words` is called 16 times, once for each task, and `shards_of_this_task` gives each call its share of the files.
Tasks are independent: each starts as soon as there is room, and one that is done stays done. Stop the run, kill it, let
a task fail, and the same command continues with the remaining tasks. When all are done, the step is.

Each file's counts are written under that file's name. So the result is the same for any number of tasks, and a task
that runs a second time writes the same files again.
"""

import json
import os
import random
from collections import Counter
from dataclasses import dataclass

from marin_rules import (
    THIS_OUTPUT_PATH,
    ExecutorStep,
    InputName,
    ResourceConfig,
    executor_main,
    output_path_of,
    remote,
    shards_of_this_task,
    this_output_path,
    this_process,
    versioned,
)

WORDS = ("the", "of", "and", "a", "to", "in", "is", "you", "that", "it", "he", "was", "for", "on", "are", "as", "with")


@dataclass(frozen=True)
class TextConfig:
    """Random text, in files of its own."""

    files: int
    words_in_a_file: int
    seed: int
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class CountConfig:
    """The words of each file."""

    text_path: str | InputName
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class TotalConfig:
    """The words of all files."""

    counts_path: str | InputName
    total_file: str = this_output_path("total.json")


def write_text(config: TextConfig) -> None:
    for number in range(config.files):
        chosen = random.Random(config.seed + number).choices(WORDS, k=config.words_in_a_file)
        with open(os.path.join(config.output_path, f"{number:03}.txt"), "w") as file:
            file.write(" ".join(chosen))


def count_words(config: CountConfig) -> dict[str, int]:
    names = [name for name in os.listdir(config.text_path) if name.endswith(".txt")]
    mine = shards_of_this_task(names)
    words = 0
    for name in mine:
        with open(os.path.join(config.text_path, name)) as file:
            counts = Counter(file.read().split())
        with open(os.path.join(config.output_path, f"{name}.json"), "w") as file:
            json.dump(counts, file)
        words += counts.total()
    process = this_process()
    print(f"task {process.task} of {process.tasks}: {words} words in {len(mine)} files")
    return {"files": len(mine), "words": words}


def add_up(config: TotalConfig) -> dict[str, int]:
    total: Counter[str] = Counter()
    for name in os.listdir(config.counts_path):
        if name.endswith(".txt.json"):
            with open(os.path.join(config.counts_path, name)) as file:
                total.update(json.load(file))
    with open(config.total_file, "w") as file:
        json.dump(dict(total.most_common()), file, indent=2)
    return {"words": total.total(), "different": len(total)}


text = ExecutorStep(
    name="word_count/text",
    fn=write_text,
    config=TextConfig(files=versioned(200), words_in_a_file=versioned(20_000), seed=versioned(1)),
)
counts = ExecutorStep(
    name="word_count/counts",
    fn=remote(count_words, tasks=16, resources=ResourceConfig.with_cpu(cpu=1, ram="500m")),
    config=CountConfig(text_path=output_path_of(text)),
)
total = ExecutorStep(name="word_count/total", fn=add_up, config=TotalConfig(counts_path=output_path_of(counts)))

if __name__ == "__main__":
    executor_main(steps=[total], description="Words counted by 16 tasks.")
