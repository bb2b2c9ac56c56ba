"""What Snakemake's report shows of an experiment: an overview, a page for every step, and what the steps declare.

The pages are made when a report is asked for, from the plan and from what the workers recorded, in Snakemake's own
folder. Declared files on an object store are fetched there. The overview is also the front page: `rules/report.rst`,
which the Snakefile names as the report's text, takes in the file that `_front_page` writes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_rules.engine.plan_in_process import PlanInProcess
from marin_rules.plans.frozen import FrozenStep
from marin_rules.storage.files import read_bytes, write_atomic
from marin_rules.units import timestamp
from marin_rules.urls import is_url
from marin_rules.views.front_page import front_page
from marin_rules.views.gathering import gather
from marin_rules.views.overview_page import ExperimentFacts, counts, overview_page, total_runtime
from marin_rules.views.spreadsheet import SUFFIXES
from marin_rules.views.spreadsheet_page import spreadsheet_page
from marin_rules.views.step_facts import StepFacts
from marin_rules.views.step_page import step_page

_SIGNIFICANT = re.compile("[{<]")
_WORD_JOINER = "\u2060"
_FOLDER = Path(".snakemake") / "marin-rules" / "report"
_OVERVIEW = "overview"
_FRONT_PAGE = "front-page"
"""As `rules/report.rst` names it."""


@dataclass(frozen=True)
class ReportItem:
    """A file for the report, with the options of Snakemake's `report(...)`."""

    path: str
    category: str
    labels: dict[str, str]

    @property
    def options(self) -> dict[str, Any]:
        return {"category": self.category, "labels": {key: _inert(text) for key, text in self.labels.items()}}


def _inert(text: str) -> str:
    """A label that looks the same, but in which Snakemake finds no wildcard and a browser no tag.

    Snakemake fills wildcards in (`{x}`), and writes labels as strings into a script, which `</script>` would end. An
    invisible character keeps the signs from what follows them.
    """
    return _SIGNIFICANT.sub(rf"\g<0>{_WORD_JOINER}", text)


def report_items(in_process: PlanInProcess) -> list[ReportItem]:
    """Write the pages and name all files that belong in the report."""
    run = in_process.plan.run
    steps = gather(in_process.plan, in_process.statuses(), lambda step: _path(_step_page(step)))
    experiment = ExperimentFacts(
        _title(run.caller_path), run.description, run.caller_path, run.prefix, timestamp(time.time())
    )
    overview = overview_page(experiment, steps)
    _write(_FRONT_PAGE, front_page(overview))
    items = [ReportItem(_write(_OVERVIEW, overview), "Experiment", _overview_labels(steps))]
    for facts in steps:
        step = in_process.plan.steps[facts.index]
        path = _write(_step_page(step), step_page(facts, overview=_path(_OVERVIEW)))
        labels = {"page": step.name, "status": facts.status, "runtime": facts.runtime}
        items.append(ReportItem(path, "Experiment", labels))
        for name, file in _declared(step, facts.report_files):
            items.append(ReportItem(file, "Pictures and tables", {"file": f"{step.name}/{name}"}))
    return items


def _overview_labels(steps: Sequence[StepFacts]) -> dict[str, str]:
    """Snakemake makes a switch of a label with two values, each in half of the entries, and shows one half (or
    fails, when an entry has no other half). A value that no other entry has prevents that."""
    return {
        "page": "overview",
        "status": ", ".join(f"{count} {status}" for status, count in counts(steps).items()),
        "runtime": f"{total_runtime(steps)} in all",
    }


def _title(caller_path: str) -> str:
    return os.path.basename(caller_path).removesuffix(".py")


def _declared(step: FrozenStep, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name and local path of each declared file that exists."""
    for name in names:
        path = os.path.join(step.output_path, name)
        if name.endswith(SUFFIXES):  # A browser would download these instead of showing them.
            page = spreadsheet_page(f"{step.name}/{name}", (read_bytes(path) or b"").decode(errors="replace"))
            yield name, _write(f"step-{step.index:05}-files/{_plain(name)}", page)
        else:
            yield name, _fetch(step, name, path) if is_url(path) or _SIGNIFICANT.search(path) else path


def _fetch(step: FrozenStep, name: str, path: str) -> str:
    """A copy of a declared file, where Snakemake can read it, and under a name that means nothing to it."""
    local = str(_FOLDER / f"step-{step.index:05}-files" / _plain(name))
    write_atomic(local, read_bytes(path) or b"")
    return local


def _plain(name: str) -> str:
    return _SIGNIFICANT.sub("_", name)


def _step_page(step: FrozenStep) -> str:
    return f"step-{step.index:05}"


def _path(name: str) -> str:
    return str(_FOLDER / f"{name}.html")


def _write(name: str, page: str) -> str:
    path = _path(name)
    write_atomic(path, page.encode())
    return path
