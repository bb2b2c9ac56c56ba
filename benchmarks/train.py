"""A training step takes as long as in bare Levanter, and comes hardly later after its start."""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import ROOT
from benchmarks.measure import run
from benchmarks.table import Row
from benchmarks.training_environment import training_python

_WORKFLOWS = ROOT / "benchmarks" / "workflows"
_WARM = 5
"""Steps at the beginning that do not count: the first one compiles."""


def training(folder: Path, shrink: int) -> Iterator[Row]:
    python = training_python()
    steps = 20 + 100 // shrink
    run([python, str(_WORKFLOWS / "train.py"), "make"], folder)
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

    def bare() -> tuple[float, list[float]]:
        began = time.time()
        run([python, str(_WORKFLOWS / "train.py"), "bare", str(steps)], folder, environment=cache)
        shutil.rmtree(folder / "bare-checkpoints", ignore_errors=True)
        return began, json.loads((folder / "bare.json").read_text())

    def ours() -> tuple[float, list[float]]:
        began = time.time()
        snakemake = [str(Path(sys.executable).with_name("snakemake")), "--snakefile", str(ROOT / "Snakefile")]
        profile = ["--workflow-profile", str(ROOT / "profiles" / "default")]
        settings = ["--config", f"experiment={_WORKFLOWS / 'train_experiment.py'}", "prefix=out"]
        run([*snakemake, *profile, *settings], folder, environment={**cache, "STEPS": str(steps)})
        (metrics,) = (folder / "out").glob("model-*/metrics.jsonl")
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        shutil.rmtree(folder / "out")
        return began, [line["time"] for line in lines if "train/loss" in line]

    found: dict[str, list[tuple[float, list[float]]]] = {"ours": [], "bare": []}
    for round in range(5):  # In turns, and the first one compiles.
        for name, side in (("bare", bare), ("ours", ours)):
            measured = side()
            if round:
                found[name].append(measured)
    steps_of = {name: [_step_seconds(times) for _, times in rounds] for name, rounds in found.items()}
    start = {name: min(times[0] - began for began, times in rounds) for name, rounds in found.items()}
    # Within a round the machine is the same for both; between rounds it may not be.
    ratios = [ours / bare for ours, bare in zip(steps_of["ours"], steps_of["bare"], strict=True)]
    yield Row("training", "step / step of bare Levanter", statistics.median(ratios), "x", 1.03)
    yield Row("training", "`snakemake` to the first step, beyond bare Levanter", start["ours"] - start["bare"], "s", 3)
    for name in found:
        yield Row("training", f"{name}: step", min(steps_of[name]) * 1000, "ms")
        yield Row("training", f"{name}: start to the first step", start[name], "s")


def _step_seconds(times: Sequence[float]) -> float:
    """The median of the times between the ends of steps: whatever happens between two of them counts."""
    counted = times[_WARM:]
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(counted))
