"""Importing the project is quick: planning and every worker begin with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.measure import least, run
from benchmarks.table import Row

_ROUNDS = 10


def import_time(folder: Path, shrink: int) -> Iterator[Row]:
    usages = least(
        _ROUNDS,
        ours=partial(run, [sys.executable, "-c", "import marin_rules"], folder),
        python=partial(run, [sys.executable, "-c", "pass"], folder),
    )
    yield Row("import", "`python -c 'import marin_rules'`", usages["ours"].wall, "s wall", 0.3)
    yield Row("import", "`python -c 'import marin_rules'`", usages["ours"].cpu, "s CPU", 0.3)
    yield Row("import", "`python -c pass`", usages["python"].cpu, "s CPU")
