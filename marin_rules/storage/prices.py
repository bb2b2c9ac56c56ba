"""Roughly what moving data between regions costs: dated list prices from `config/prices.yaml`.

For messages only. A price that is not in the table is None, never a guess; nothing is refused because of a price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from marin_rules.geography import common, continent
from marin_rules.project import project_folder
from marin_rules.units import GIGABYTE, about_dollars


@dataclass(frozen=True)
class Price:
    """An estimate, with the date of the prices behind it."""

    dollars: float
    date: str

    def __str__(self) -> str:
        return f"{about_dollars(self.dollars)} (list prices of {self.date})"


def estimate(size: int, source: str | None, target: str | None) -> Price | None:
    """What it costs to move `size` bytes from one location to another; None where no price is known."""
    if source is None or target is None:
        return None
    date, prices = _table()
    if common(source, target) is not None:
        return Price(0.0, date)
    per_gb = prices.get((continent(source), continent(target)))
    return None if per_gb is None else Price(size / GIGABYTE * per_gb, date)


@cache
def _table() -> tuple[str, Mapping[tuple[str | None, str | None], float]]:
    import yaml

    try:
        content = yaml.safe_load((project_folder() / "config" / "prices.yaml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        # A worker may have the package without the project's files. It must still say why it refuses.
        return "an unknown date", {}
    prices = {
        (source, target): float(price)
        for source, row in content["from"].items()
        for target, price in zip(content["to"], row, strict=True)
    }
    return str(content["date"]), prices
