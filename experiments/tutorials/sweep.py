"""A sweep: the same step over a grid of settings, on shared data, with a summary of all.

    snakemake --config experiment=experiments/tutorials/sweep.py prefix=out
    snakemake --config experiment=experiments/tutorials/sweep.py prefix=out --report report.html

A straight line is fitted to noisy points by gradient descent, once for each learning rate and batch size.
The points are made once. Add a learning rate and run again: only the new fits and the summary run.
"""

import itertools
import json
import os
import random
from dataclasses import dataclass

import fsspec

from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, versioned

LEARNING_RATES = (0.01, 0.03, 0.1, 0.3)
BATCH_SIZES = (1, 8, 64)


@dataclass(frozen=True)
class PointsConfig:
    """Points around a line."""

    count: int
    seed: int
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class FitConfig:
    """One fit of the grid."""

    points: str
    learning_rate: float
    batch_size: int
    steps: int
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class SummaryConfig:
    """All fits to compare."""

    fits: list[str]
    output_path: str = THIS_OUTPUT_PATH


def make_points(config: PointsConfig) -> None:
    generator = random.Random(config.seed)
    xs = [generator.uniform(-1, 1) for _ in range(config.count)]
    points = [(x, 2 * x + 1 + generator.gauss(0, 0.1)) for x in xs]
    with fsspec.open(os.path.join(config.output_path, "points.json"), "w") as file:
        json.dump(points, file)


def fit(config: FitConfig) -> dict[str, float]:
    with fsspec.open(config.points) as file:
        points = json.load(file)
    generator = random.Random(0)
    slope = offset = 0.0
    for _ in range(config.steps):
        batch = generator.sample(points, config.batch_size)
        errors = [(slope * x + offset - y, x) for x, y in batch]
        slope -= config.learning_rate * sum(error * x for error, x in errors) / len(batch)
        offset -= config.learning_rate * sum(error for error, _ in errors) / len(batch)
    loss = sum((slope * x + offset - y) ** 2 for x, y in points) / len(points)
    result = {"learning_rate": config.learning_rate, "batch_size": config.batch_size, "loss": loss}
    with fsspec.open(os.path.join(config.output_path, "result.json"), "w") as file:
        json.dump(result, file)
    print(f"learning rate {config.learning_rate}, batch size {config.batch_size}: loss {loss:.4f}")
    return result


def summarize(config: SummaryConfig) -> dict[str, float]:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    results = []
    for path in config.fits:
        with fsspec.open(path) as file:
            results.append(json.load(file))
    with fsspec.open(os.path.join(config.output_path, "results.csv"), "w") as file:
        file.write("learning_rate,batch_size,loss\n")
        file.writelines(f"{r['learning_rate']},{r['batch_size']},{r['loss']}\n" for r in results)

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for batch_size in sorted({r["batch_size"] for r in results}):
        line = [r for r in results if r["batch_size"] == batch_size]
        axes.plot([r["learning_rate"] for r in line], [r["loss"] for r in line], marker="o", label=str(batch_size))
    axes.set(xscale="log", yscale="log", xlabel="learning rate", ylabel="loss", title="Loss after 200 steps")
    axes.legend(title="batch size")
    with fsspec.open(os.path.join(config.output_path, "losses.svg"), "wb") as file:
        figure.savefig(file, format="svg")
    return min(results, key=lambda r: r["loss"])


points = ExecutorStep(
    name="sweep/points",
    description="Noisy points around y = 2x + 1.",
    fn=make_points,
    config=PointsConfig(count=versioned(512), seed=versioned(0)),
)

fits = [
    ExecutorStep(
        name=f"sweep/fit/lr={learning_rate}-bs={batch_size}",
        fn=fit,
        config=FitConfig(
            points=points / "points.json",
            learning_rate=versioned(learning_rate),
            batch_size=versioned(batch_size),
            steps=versioned(200),
        ),
    )
    for learning_rate, batch_size in itertools.product(LEARNING_RATES, BATCH_SIZES)
]

summary = ExecutorStep(
    name="sweep/summary",
    description="Losses of all fits, and the best of them.",
    fn=summarize,
    config=SummaryConfig(fits=[step / "result.json" for step in fits]),
    report=["losses.svg", "results.csv"],
)

if __name__ == "__main__":
    executor_main(steps=[summary], description="Learning rate against batch size.")
