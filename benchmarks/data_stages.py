"""The data stages cost little more than the libraries that do the work: each against a bare loop on the same files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.measure import BenchmarkError, Side, Usage, least, run
from benchmarks.table import Row

_SCRIPT = ROOT / "benchmarks" / "workflows" / "data_stages.py"
_DATATROVE = ROOT / "benchmarks" / "workflows" / "datatrove_dedupe.py"


def page_extraction(folder: Path, shrink: int) -> Iterator[Row]:
    pages = 45_000 // shrink
    usages = _measured(folder, "extract", pages, rounds=3)
    for side in ("ours", "bare"):
        if (done := _answer(folder, "extract", side)["documents"]) != pages:
            raise BenchmarkError(f"{side} made {done} documents of {pages} pages")
    ratio = usages["ours"].cpu / usages["bare"].cpu
    yield Row("page_extraction", f"CPU of {pages:,} pages / a bare loop over resiliparse", ratio, "x", 1.1)
    for side, usage in usages.items():
        yield Row("page_extraction", f"{side}, start-up included", usage.cpu, "s CPU")


def near_duplicates(folder: Path, shrink: int) -> Iterator[Row]:
    documents = 100_000 // shrink
    python = _datatrove(folder)
    usages = _measured(folder, "dedupe", documents, rounds=1)
    usages["datatrove"] = run([str(python), str(_DATATROVE), str(os.cpu_count() or 1)], folder)
    for more in ("judge_datatrove", "default"):
        run([sys.executable, str(_SCRIPT), "dedupe", more, str(documents)], folder)
    answers = {side: _answer(folder, "dedupe", side) for side in (*usages, "default")}
    for side, peer, bar in (("bare", "a bare loop over rensa", 1.3), ("datatrove", "datatrove 0.10.1", 0.1)):
        ratio = usages["ours"].cpu / usages[side].cpu
        yield Row("near_duplicates", f"CPU of {documents:,} documents / {peer}", ratio, "x", bar)
    for side, usage in usages.items():
        yield Row("near_duplicates", f"{side}, start-up included", usage.cpu, "s CPU")
        yield Row("near_duplicates", f"{side}, the largest process", usage.memory, "MB")
    missed = {side: 100 * (1 - answer["found"] / answer["planted"]) for side, answer in answers.items()}
    wrong = {side: 100 * answer["wrong"] / max(answer["marked"], 1) for side, answer in answers.items()}
    for side, bars in (
        ("ours", (missed["datatrove"], wrong["datatrove"])),
        ("bare", (None, None)),
        ("datatrove", (None, None)),
    ):
        yield Row("near_duplicates", f"planted copies that are missed, {side}", missed[side], "%", bars[0])
        yield Row("near_duplicates", f"marked although nothing was planted, {side}", wrong[side], "%", bars[1])
    yield Row("near_duplicates", "the same at threshold 0.8, of copies at least as similar", missed["default"], "%")


def rewriting(folder: Path, shrink: int) -> Iterator[Row]:
    documents = 100_000 // shrink
    usages = _measured(folder, "rewrite", documents, rounds=3, sides=("consolidate", "shuffle", "bare"))
    for side, usage in usages.items():
        done = _answer(folder, "rewrite", side)
        if done["documents"] != documents:
            raise BenchmarkError(f"{side} wrote {done['documents']} of {documents} documents")
        speed = done["bytes"] / usage.cpu / 1e6
        name = "decompressing and compressing" if side == "bare" else side
        yield Row("rewriting", f"{name}, of text, start-up included", speed, "MB/s CPU")
    for side in ("consolidate", "shuffle"):
        ratio = usages[side].cpu / usages["bare"].cpu
        yield Row("rewriting", f"CPU of {side} / decompressing and compressing", ratio, "x")


def _datatrove(folder: Path) -> Path:
    """The Python of an environment with datatrove, made if it is not there: its libraries are not for ours."""
    environment = folder / "datatrove-environment"
    python = environment / "bin" / "python"
    uv = str(Path(sys.executable).with_name("uv"))
    if not python.exists():
        run([uv, "venv", "--python", sys.executable, str(environment)], folder)
        # spaCy and its kin are missing from the requirements of datatrove's own extras.
        run([uv, "pip", "install", "--python", str(python), "datatrove[processing,io]==0.10.1", "spacy"], folder)
    return python


def _measured(
    folder: Path, stage: str, size: int, rounds: int, sides: Sequence[str] = ("ours", "bare")
) -> dict[str, Usage]:
    run([sys.executable, str(_SCRIPT), stage, "make", str(size)], folder)

    def side(name: str) -> Side:
        return lambda: run([sys.executable, str(_SCRIPT), stage, name, str(size)], folder)

    return least(rounds, **{name: side(name) for name in sides})


def _answer(folder: Path, stage: str, side: str) -> Any:
    return json.loads((folder / f"{stage}-{side}.json").read_text())
