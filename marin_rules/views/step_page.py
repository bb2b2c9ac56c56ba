"""A step as an HTML page, and all steps as one: what the report shows. The pages load nothing from anywhere."""

from __future__ import annotations

import csv
import html
import io
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marin_rules.views.table import duration

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem; color: #1f2933; }
h1 { font-size: 1.25rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
p.description { margin: 0 0 1rem; color: #52606d; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid #e4e7eb; }
th { white-space: nowrap; color: #52606d; font-weight: 600; }
code, pre { font: 12.5px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap; margin: 0; }
ul { margin: 0; padding-left: 1.1rem; }
.status { font-weight: 600; } .SUCCESS { color: #18794e; } .FAILED, .DEP_FAILED { color: #c62828; }
.RUNNING { color: #0b6bcb; } .CANCELLED, .missing { color: #8a6d00; }
"""


_MAX_ROWS = 1000


@dataclass(frozen=True)
class StepFacts:
    """What a page tells about a step."""

    name: str
    description: str | None
    function: str
    output_path: str
    version: Mapping[str, Any]
    """The versioned part of the config: dotted path -> value."""

    config: Any
    dependencies: Sequence[str]
    status: str
    """The status, or "not run"."""

    run: Mapping[str, Any]
    """What the worker wrote about the last attempt; empty if there was none."""

    @property
    def runtime(self) -> str:
        seconds = self.run.get("seconds")
        return duration(seconds) if isinstance(seconds, int | float) else ""

    @property
    def place(self) -> str:
        """Where it ran: the machines of its Slurm job, or the host of its worker."""
        slurm = self.run.get("slurm")
        if not isinstance(slurm, dict):
            return str(self.run.get("host") or "")
        return f"{slurm.get('nodes', '')} (slurm job {slurm.get('job_id', '')}, partition {slurm.get('partition', '')})"

    @property
    def gpus(self) -> str:
        """The GPUs that it saw, by their numbers on the first machine."""
        slurm = self.run.get("slurm")
        if isinstance(slurm, dict):
            return str(slurm.get("gpus", ""))
        return ", ".join(map(str, self.run.get("gpus") or ()))


def step_page(facts: StepFacts) -> str:
    """Everything about one step."""
    rows = [
        ("status", _status(facts.status)),
        ("runtime", _text(facts.runtime)),
        ("ran on", _text(facts.place)),
        ("function", _code(facts.function)),
        ("output path", _code(facts.output_path)),
        ("versioned config", _json(facts.version)),
        ("dependencies", _list(facts.dependencies)),
        ("config", _json(facts.config)),
    ]
    labels = {"attempt": "attempt", "started": "started", "finished": "finished", "user": "user"}
    labels |= {"git_commit": "git commit", "caller_path": "experiment", "id": "run", "error": "error"}
    rows += [(label, _text(facts.run[key])) for key, label in labels.items() if facts.run.get(key) is not None]
    if facts.gpus:
        rows.append(("GPUs", _text(facts.gpus)))
    environment = facts.run.get("environment")
    if isinstance(environment, dict):
        rows.append(("environment", _code(environment.get("path", ""))))
        if environment.get("conda_file"):
            rows.append(("conda file", _code(environment["conda_file"])))
        rows.append(("packages", _json(environment.get("packages", {}))))
        if environment.get("pip_packages"):
            rows.append(("added by pip", _json(environment["pip_packages"])))
    return _page(facts.name, facts.description, _table(rows))


def overview_page(title: str, description: str | None, steps: Sequence[StepFacts]) -> str:
    """One row a step."""
    head = "".join(f"<th>{label}</th>" for label in ("step", "status", "runtime", "ran on", "function", "output path"))
    rows = "".join(
        f"<tr><td>{_text(step.name)}</td><td>{_status(step.status)}</td><td>{_text(step.runtime)}</td>"
        f"<td>{_text(step.place)}</td><td>{_code(step.function)}</td><td>{_code(step.output_path)}</td></tr>"
        for step in steps
    )
    return _page(title, description, f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")


def spreadsheet_page(title: str, text: str) -> str:
    """A table in comma- or tab-separated values; a long one is cut."""
    lines = csv.reader(io.StringIO(text), delimiter="\t" if title.endswith(".tsv") else ",")
    rows = list(itertools.islice(lines, _MAX_ROWS + 1))
    body = ""
    for kind, part in (("th", rows[:1]), ("td", rows[1:_MAX_ROWS])):
        for row in part:
            body += "<tr>" + "".join(f"<{kind}>{_text(cell)}</{kind}>" for cell in row) + "</tr>"
    cut = f"Only the first {_MAX_ROWS} rows are shown." if len(rows) > _MAX_ROWS else None
    return _page(title, cut, f"<table>{body}</table>")


def _page(title: str, description: str | None, body: str) -> str:
    about = f'<p class="description">{_text(description)}</p>' if description else ""
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{_text(title)}</h1>{about}{body}</body></html>\n"
    )


def _table(rows: Sequence[tuple[str, str]]) -> str:
    return "<table>" + "".join(f"<tr><th>{label}</th><td>{cell}</td></tr>" for label, cell in rows) + "</table>"


def _text(value: Any) -> str:
    return html.escape(str(value))


def _code(value: Any) -> str:
    return f"<code>{_text(value)}</code>"


def _json(value: Any) -> str:
    return f"<pre>{_text(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"


def _list(values: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{_code(value)}</li>" for value in values) + "</ul>" if values else "none"


def _status(status: str) -> str:
    kind = status if status.isupper() else "missing"
    return f'<span class="status {kind}">{_text(status)}</span>'
