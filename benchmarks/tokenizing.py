"""`tokenize` is about as fast as the tokenizers library with nothing around it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.measure import BenchmarkError, run
from benchmarks.table import Row
from benchmarks.training_environment import training_python

_SCRIPT = ROOT / "benchmarks" / "workflows" / "tokenize_documents.py"
_ROUNDS = 3
_LEAST_SPEED = 0.85
"""Of the bare library."""


def tokenizing(folder: Path, shrink: int) -> Iterator[Row]:
    megabytes = 80 // shrink
    run([training_python(), str(_SCRIPT), "make", str(megabytes)], folder)
    memory: dict[str, float] = {}
    best: dict[str, dict[str, Any]] = {}
    for _ in range(_ROUNDS):
        for side in ("ours", "bare"):
            usage = run([training_python(), str(_SCRIPT), side, str(megabytes)], folder)
            memory[side] = max(memory.get(side, 0.0), usage.memory)
            told = json.loads((folder / f"tokenize-{side}.json").read_text())
            known = best.setdefault(side, told)
            best[side] = {**told, **{clock: min(told[clock], known[clock]) for clock in ("wall", "cpu")}}
    counts = {(one["documents"], one["tokens"]) for one in best.values()}
    if len(counts) != 1:
        raise BenchmarkError(f"the two sides made different tokens: {best}")
    for clock in ("wall", "cpu"):
        ratio = best["ours"][clock] / best["bare"][clock]
        name = f"{clock} seconds of {megabytes} MB / encode_batch, both on two cores, start-up apart"
        yield Row("tokenizing", name, ratio, "x", round(1 / _LEAST_SPEED, 2))
    for side, one in best.items():
        yield Row("tokenizing", f"{side}, on two cores", megabytes / one["wall"], "MB/s")
        yield Row("tokenizing", f"{side}, the largest process", memory[side], "MB")
