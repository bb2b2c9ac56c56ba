"""`marin-rules --help` answers at once: completions and people call it often."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.measure import least, run
from benchmarks.table import Row

_ROUNDS = 10


def help_text(folder: Path, shrink: int) -> Iterator[Row]:
    command = [str(Path(sys.executable).with_name("marin-rules")), "--help"]
    usages = least(
        _ROUNDS,
        ours=partial(run, command, folder, expect="usage: marin-rules"),
        python=partial(run, [sys.executable, "-c", "pass"], folder),
    )
    yield Row("help", "`marin-rules --help`", usages["ours"].wall, "s wall", 0.08)
    yield Row("help", "`python -c pass`", usages["python"].wall, "s wall")
