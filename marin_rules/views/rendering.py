"""HTML from the templates beside this module. Whatever they are given is escaped: markup comes from templates alone.

The pages load nothing from anywhere. They are shown inside Snakemake's report, in frames of their own.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin_rules.views.closing import last_line
from marin_rules.views.sweep import Cell, as_written

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).resolve().parent / "templates"


def render(template: str, **facts: Any) -> str:
    """A template with these facts in it. A missing name is an error, never a blank."""
    return _templates().get_template(template).render(facts)


@cache
def _templates() -> Environment:
    import jinja2  # Imported here: only a report needs it.

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {
        "as_json": _as_json,
        "as_written": as_written,
        "last_line": last_line,
        "moment": _moment,
        "sortable": _sortable,
        "status_class": _status_class,
    }
    return templates


def _as_json(value: Any) -> str:
    """A value as people read it."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _moment(written: str) -> str:
    """`2026-11-17T21:20:14+01:00` without the offset."""
    return written[:19].replace("T", " ")


def _status_class(status: str) -> str:
    """The style sheet's class for a status: one for each, and one for steps without any."""
    return status if status.isupper() else "missing"


def _sortable(value: Cell) -> str:
    """The sort key of a cell; empty ones come last, with those that are not numbers."""
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None or value != value else str(value)
