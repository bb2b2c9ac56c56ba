"""What training steps leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def metrics(folder: Path, name: str = "train/loss") -> list[tuple[int, float]]:
    """The values of a metric, by step."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line[name]) for line in lines if name in line]


def facts(folder: Path) -> Any:
    return json.loads((folder / "training.json").read_text())
