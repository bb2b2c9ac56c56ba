"""Two steps: make some numbers, then compute their statistics.

snakemake --config experiment=experiments/tutorials/hello_world.py prefix=out
python experiments/tutorials/hello_world.py --prefix out
"""

import json
import os
from dataclasses import dataclass

import fsspec

from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, output_path_of


@dataclass(frozen=True)
class GenerateDataConfig:
    """How many numbers to make."""

    n: int
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class ComputeStatsConfig:
    """Which numbers to look at."""

    input_path: str
    output_path: str = THIS_OUTPUT_PATH


def generate_data(config: GenerateDataConfig) -> None:
    numbers = list(range(config.n))
    print(f"writing {len(numbers)} numbers")
    with fsspec.open(os.path.join(config.output_path, "numbers.json"), "w") as file:
        json.dump(numbers, file)


def compute_stats(config: ComputeStatsConfig) -> dict[str, float]:
    with fsspec.open(os.path.join(config.input_path, "numbers.json")) as file:
        numbers = json.load(file)
    stats = {
        "sum": sum(numbers),
        "min": min(numbers),
        "max": max(numbers),
        "mean": sum(numbers) / len(numbers),
    }
    with fsspec.open(os.path.join(config.output_path, "stats.json"), "w") as file:
        json.dump(stats, file)
    return stats


data = ExecutorStep(
    name="hello_world/data",
    description="The numbers from 0 to 99.",
    fn=generate_data,
    config=GenerateDataConfig(n=100),
)

stats = ExecutorStep(
    name="hello_world/stats",
    description="Sum, minimum, maximum and mean of the numbers.",
    fn=compute_stats,
    config=ComputeStatsConfig(input_path=output_path_of(data)),
)

if __name__ == "__main__":
    executor_main(steps=[data, stats], description="Numbers and their statistics.")
