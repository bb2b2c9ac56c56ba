"""One experiment for a laptop, for Slurm and for Google Cloud: steps on a CPU, a GPU, two machines, and a TPU slice.

    snakemake --config experiment=experiments/tutorials/cluster.py prefix=out                   # all of it here
    snakemake --config experiment=experiments/tutorials/cluster.py prefix=out run_only=cluster/summary --profile slurm
    snakemake --config experiment=experiments/tutorials/cluster.py prefix=gs://... cluster=NAME --profile gcp

`remote` says what a function needs. On a cluster each such step is a job of its own, on machines that have it; here the
step runs with what the machine has. Plain steps (`summarize`) always run beside Snakemake. (Slurm has no TPUs: there
`run_only` leaves the last step out.)

`fit` writes a checkpoint after every tenth round, into its own output path. When its job is preempted, or reaches its
time limit, the next one finds the checkpoint there and continues. `measure` runs once on each of two machines, and
`this_process()` tells each which share of the work is its own; on one machine it runs once and does all of it. So does
`survey`, on each of the 16 hosts of a TPU slice. Files are opened with fsspec, so that a prefix may be a bucket.
"""

import json
import os
import random
from dataclasses import dataclass
from typing import Any

import fsspec

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
class SurveyConfig:
    """How well other lines with similar slopes would do."""

    points_file: str | InputName
    line_file: str | InputName
    lines: int
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class SummaryConfig:
    """All shares together."""

    shares: str | InputName


def read_json(path: str | InputName) -> Any:
    with fsspec.open(str(path)) as file:
        return json.load(file)


def write_json(path: str, value: Any) -> None:
    with fsspec.open(path, "w") as file:
        json.dump(value, file)


def mean_square(points: list[tuple[float, float]], slope: float, offset: float) -> float:
    return sum((slope * x + offset - y) ** 2 for x, y in points) / len(points)


@remote(resources=ResourceConfig.with_cpu(cpu=1, ram="500m"))
def make_points(config: PointsConfig) -> None:
    """Points with some noise."""
    generator = random.Random(config.seed)
    points = [(x, 3 * x + 1 + generator.gauss(0, 0.1)) for x in (generator.random() for _ in range(config.count))]
    write_json(config.points_file, points)


@remote(resources=ResourceConfig.with_gpu("auto", count=1, ram="500m"))
def fit(config: FitConfig) -> dict[str, float]:
    """Gradient descent that continues where it was stopped."""
    points = read_json(config.points_file)
    store, folder = fsspec.core.url_to_fs(config.output_path)
    checkpoint = os.path.join(folder, "checkpoint.json")
    begun, slope, offset = 0, 0.0, 0.0
    if store.exists(checkpoint):
        begun, slope, offset = json.loads(store.cat_file(checkpoint))
        print(f"continues after round {begun}")
    print(f"GPUs: {os.environ.get('CUDA_VISIBLE_DEVICES') or 'none'}")
    for number in range(begun, config.rounds):
        errors = [(slope * x + offset - y, x) for x, y in points]
        slope -= config.learning_rate * 2 * sum(error * x for error, x in errors) / len(points)
        offset -= config.learning_rate * 2 * sum(error for error, _ in errors) / len(points)
        if (number + 1) % 10 == 0:
            store.pipe_file(f"{checkpoint}.new", json.dumps([number + 1, slope, offset]).encode())
            store.mv(f"{checkpoint}.new", checkpoint)  # A process that is stopped here leaves a whole checkpoint.
    write_json(os.path.join(config.output_path, "line.json"), {"slope": slope, "offset": offset})
    return {"slope": slope, "offset": offset}


@remote(resources=ResourceConfig.with_cpu(cpu=1, ram="500m", replicas=2))
def measure(config: MeasureConfig) -> None:
    """Squared distances of this machine's share of the points."""
    rank, machines = this_process().rank, this_process().count
    points, line = read_json(config.points_file), read_json(config.line_file)
    share = points[rank::machines]
    print(f"machine {rank + 1} of {machines}: {len(share)} points")
    found = {"points": len(share), "sum_of_squares": len(share) * mean_square(share, line["slope"], line["offset"])}
    write_json(os.path.join(config.output_path, f"share-{rank}.json"), found)


@remote(resources=ResourceConfig.with_tpu("v4-128", cpu=1, ram="500m"))
def survey(config: SurveyConfig) -> None:
    """The errors of this host's share of the lines."""
    rank, hosts = this_process().rank, this_process().count
    points, line = read_json(config.points_file), read_json(config.line_file)
    slopes = [line["slope"] + (number - config.lines // 2) / config.lines for number in range(config.lines)]
    share = slopes[rank::hosts]
    print(f"host {rank + 1} of {hosts}: {len(share)} lines")
    errors = [[slope, mean_square(points, slope, line["offset"])] for slope in share]
    write_json(os.path.join(config.output_path, f"errors-{rank}.json"), errors)


def summarize(config: SummaryConfig) -> dict[str, float]:
    """The mean over all shares."""
    store, folder = fsspec.core.url_to_fs(str(config.shares))
    shares = [json.loads(store.cat_file(path)) for path in sorted(store.glob(os.path.join(folder, "share-*.json")))]
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
errors = ExecutorStep(
    "cluster/survey", survey, SurveyConfig(points / "points.json", line / "line.json", lines=versioned(64))
)

if __name__ == "__main__":
    executor_main(steps=[summary, errors], description="A line through points, on one machine or on several.")
