"""One experiment for a laptop and for a cluster: a CPU step, a GPU step, and a step on two machines.

    snakemake --config experiment=experiments/tutorials/cluster.py prefix=out                   # all of it here
    snakemake --config experiment=experiments/tutorials/cluster.py prefix=out --profile slurm   # on Slurm

`remote` says what a function needs. On Slurm each such step is a job of its own, in a partition that has it; here the
step runs with what the machine has. Plain steps (`summarize`) always run beside Snakemake.

`fit` writes a checkpoint after every round, into its own output path. When its job is preempted, or reaches its time
limit, the next one finds the checkpoint there and goes on. `measure` runs once on each of two machines, and
`this_process()` tells each which share of the work is its own; on one machine it runs once and does all of it.
"""

import json
import os
import random
from dataclasses import dataclass

from marin_rules import (
    THIS_OUTPUT_PATH,
    ExecutorStep,
    InputName,
    ResourceConfig,
    executor_main,
    remote,
    this_output_path,
    this_process,
    versioned,
)


@dataclass(frozen=True)
class PointsConfig:
    """Points around the line y = 3 x + 1."""

    count: int
    seed: int
    points_file: str = this_output_path("points.json")


@dataclass(frozen=True)
class FitConfig:
    """A line through the points, found by gradient descent."""

    points_file: str | InputName
    rounds: int
    learning_rate: float
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class MeasureConfig:
    """How far points are from the line, each machine looking at its share of them."""

    points_file: str | InputName
    line_file: str | InputName
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class SummaryConfig:
    """All shares together."""

    shares: str | InputName


@remote(resources=ResourceConfig.with_cpu(cpu=1, ram="500m"))
def make_points(config: PointsConfig) -> None:
    """Points with some noise."""
    generator = random.Random(config.seed)
    points = [(x, 3 * x + 1 + generator.gauss(0, 0.1)) for x in (generator.random() for _ in range(config.count))]
    with open(config.points_file, "w") as file:
        json.dump(points, file)


@remote(resources=ResourceConfig.with_gpu("auto", count=1, ram="500m"))
def fit(config: FitConfig) -> dict[str, float]:
    """Gradient descent that goes on where it was stopped."""
    with open(str(config.points_file)) as file:
        points = json.load(file)
    checkpoint = os.path.join(config.output_path, "checkpoint.json")
    begun, slope, offset = 0, 0.0, 0.0
    if os.path.exists(checkpoint):
        with open(checkpoint) as file:
            begun, slope, offset = json.load(file)
        print(f"goes on after round {begun}")
    print(f"GPUs: {os.environ.get('CUDA_VISIBLE_DEVICES') or 'none'}")
    for number in range(begun, config.rounds):
        errors = [(slope * x + offset - y, x) for x, y in points]
        slope -= config.learning_rate * 2 * sum(error * x for error, x in errors) / len(points)
        offset -= config.learning_rate * 2 * sum(error for error, _ in errors) / len(points)
        with open(f"{checkpoint}.new", "w") as file:
            json.dump([number + 1, slope, offset], file)
        os.replace(f"{checkpoint}.new", checkpoint)  # Whoever is stopped here leaves a whole checkpoint.
    with open(os.path.join(config.output_path, "line.json"), "w") as file:
        json.dump({"slope": slope, "offset": offset}, file)
    return {"slope": slope, "offset": offset}


@remote(resources=ResourceConfig.with_cpu(cpu=1, ram="500m", replicas=2))
def measure(config: MeasureConfig) -> None:
    """Squared distances of this machine's share of the points."""
    rank, machines = this_process().rank, this_process().count
    with open(str(config.points_file)) as points_file, open(str(config.line_file)) as line_file:
        points, line = json.load(points_file), json.load(line_file)
    share = points[rank::machines]
    print(f"machine {rank + 1} of {machines}: {len(share)} points")
    squares = [(line["slope"] * x + line["offset"] - y) ** 2 for x, y in share]
    with open(os.path.join(config.output_path, f"share-{rank}.json"), "w") as file:
        json.dump({"points": len(share), "sum_of_squares": sum(squares)}, file)


def summarize(config: SummaryConfig) -> dict[str, float]:
    """The mean over all shares."""
    shares = []
    for name in sorted(os.listdir(str(config.shares))):
        if name.startswith("share-"):
            with open(os.path.join(str(config.shares), name)) as file:
                shares.append(json.load(file))
    points = sum(share["points"] for share in shares)
    return {"points": points, "mean_square": sum(share["sum_of_squares"] for share in shares) / points}


points = ExecutorStep("cluster/points", make_points, PointsConfig(count=versioned(1000), seed=versioned(7)))
line = ExecutorStep(
    "cluster/line",
    fit,
    FitConfig(points / "points.json", rounds=versioned(200), learning_rate=versioned(0.5)),
    description="A line through the points.",
)
distances = ExecutorStep("cluster/distances", measure, MeasureConfig(points / "points.json", line / "line.json"))
summary = ExecutorStep("cluster/summary", summarize, SummaryConfig(distances.as_input_name()))

if __name__ == "__main__":
    executor_main(steps=[summary], description="A line through points, on one machine or on several.")
