"""Tables of comma- or tab-separated values, as far as a page shows them."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

SUFFIXES = (".csv", ".tsv")


@dataclass(frozen=True)
class Table:
    """The first rows of a file, cell by cell."""

    name: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_cut: bool = False
    """Whether there are more."""


def read_table(name: str, text: str, most_rows: int) -> Table:
    lines = csv.reader(io.StringIO(text), delimiter="\t" if name.endswith(".tsv") else ",")
    head = next(lines, [])
    rows = list(itertools.islice(lines, most_rows + 1))
    return Table(name, head, rows[:most_rows], is_cut=len(rows) > most_rows)
