"""A table of comma- or tab-separated values as an HTML page; a long one is cut."""

from __future__ import annotations

import csv
import io
import itertools

from marin_rules.views.rendering import render

_MAX_ROWS = 1000


def spreadsheet_page(title: str, text: str) -> str:
    lines = csv.reader(io.StringIO(text), delimiter="\t" if title.endswith(".tsv") else ",")
    rows = list(itertools.islice(lines, _MAX_ROWS + 1))
    cut = f"Only the first {_MAX_ROWS} rows are shown." if len(rows) > _MAX_ROWS else None
    return render("spreadsheet.html", title=title, description=cut, head=rows[:1], body=rows[1:_MAX_ROWS])
