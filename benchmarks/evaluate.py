"""An evaluation costs little more than lm-eval over Levanter with nothing around it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks import ROOT
from benchmarks.measure import BenchmarkError, Side, least, run
from benchmarks.table import Row
from benchmarks.training_environment import training_python

_SCRIPT = ROOT / "benchmarks" / "workflows" / "evaluate.py"


def evaluation(folder: Path, shrink: int) -> Iterator[Row]:
    python = training_python()
    items = 2000 // shrink
    run([python, str(_SCRIPT), "make", str(items)], folder)

    def side(name: str) -> Side:
        return lambda: run([python, str(_SCRIPT), name, str(items)], folder)

    usages = least(3, ours=side("ours"), bare=side("bare"))
    scores = {name: json.loads((folder / f"{name}.json").read_text())["score"] for name in usages}
    if abs(scores["ours"] - scores["bare"]) > 0.01:
        raise BenchmarkError(f"the two sides do not agree: {scores}")
    ratio = usages["ours"].cpu / usages["bare"].cpu
    yield Row("evaluation", f"CPU of {items:,} questions / bare lm-eval over Levanter", ratio, "x", 1.05)
    for name, usage in usages.items():
        yield Row("evaluation", f"{name}, start-up included", usage.cpu, "s CPU")
