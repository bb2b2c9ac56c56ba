"""A table of comma- or tab-separated values as an HTML page; a long one is cut."""

from __future__ import annotations

from marin_rules.views.rendering import render
from marin_rules.views.spreadsheet import read_table

_MOST_ROWS = 1000


def spreadsheet_page(title: str, text: str) -> str:
    shown = read_table(title, text, _MOST_ROWS)
    cut = f"Only the first {_MOST_ROWS} rows are shown." if shown.is_cut else None
    return render("spreadsheet.html", title=title, description=cut, shown=shown)
