"""Items for Snakemake's report."""

from __future__ import annotations

from dataclasses import dataclass

from marin_rules.engine.session import Session


@dataclass(frozen=True)
class ReportItem:
    path: str
    caption: str | None
    category: str
    labels: dict[str, str]


def report_items(session: Session) -> list[ReportItem]:
    return []
