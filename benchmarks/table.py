"""The rows that benchmarks return, shown as a table: on the terminal, and between markers in README.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_HEADER = ("benchmark", "measured", "figure", "bar", "verdict")
_BEGIN = "<!-- table: begin (written by `python -m benchmarks --write`) -->"
_END = "<!-- table: end -->"


@dataclass(frozen=True)
class Row:
    """One figure."""

    benchmark: str
    measured: str
    value: float
    unit: str
    bar: float | None = None
    """The most that is allowed; None for a figure that is only reported."""

    @property
    def is_over(self) -> bool:
        return self.bar is not None and self.value > self.bar

    @property
    def cells(self) -> tuple[str, ...]:
        bar = "" if self.bar is None else f"at most {self.bar:g} {self.unit}"
        verdict = "" if self.bar is None else "over" if self.is_over else "ok"
        return self.benchmark, self.measured, f"{_number(self.value)} {self.unit}", bar, verdict


def render(rows: Sequence[Row]) -> str:
    """A Markdown table that is also easy to read as it is."""
    lines = [_HEADER, *(row.cells for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADER))]
    texts = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([texts[0], rule, *texts[1:]])


def write(path: Path, stamp: str, rows: Sequence[Row]) -> None:
    """Replace what is between the markers in `path`."""
    before, begin, rest = path.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"{path} lacks the markers {_BEGIN} and {_END}")
    path.write_text(f"{before}{begin}\n{stamp}\n\n{render(rows)}\n{end}{after}")


def _number(value: float) -> str:
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{decimals}f}"
