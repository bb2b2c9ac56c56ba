"""What Snakemake's report shows of an experiment: a page for every step, and what the steps declare for it.

The pages are made when a report is asked for, from the plan and from what the workers wrote down, in Snakemake's own
folder. Declared files on an object store are fetched there.
"""

from __future__ import annotations

import fnmatch
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_rules.engine.session import Session
from marin_rules.execution.frozen import FrozenStep
from marin_rules.execution.info import read_info
from marin_rules.execution.status import Status
from marin_rules.storage.files import is_url, read_bytes, write_atomic
from marin_rules.views.step_page import StepFacts, overview_page, spreadsheet_page, step_page
from marin_rules.views.table import duration

_FOLDER = Path(".snakemake") / "marin-rules" / "report"


@dataclass(frozen=True)
class ReportItem:
    """A file for the report, with the options of Snakemake's `report(...)`."""

    path: str
    category: str
    labels: dict[str, str]

    @property
    def options(self) -> dict[str, Any]:
        return {"category": self.category, "labels": self.labels}


def report_items(session: Session) -> list[ReportItem]:
    """Write the pages and name all files that belong into the report."""
    run = session.plan.run
    steps = [(step, _facts(session, step)) for step in session.plan.steps if step.needed]
    overview = overview_page(_title(run.caller_path), run.description, [facts for _, facts in steps])
    items = [ReportItem(_write("overview", overview), "Experiment", _overview_labels([facts for _, facts in steps]))]
    for step, facts in steps:
        path = _write(f"step-{step.index:05}", step_page(facts))
        labels = {"page": step.name, "status": facts.status, "runtime": facts.runtime}
        items.append(ReportItem(path, "Experiment", labels))
        for name, file in _declared(step):
            items.append(ReportItem(file, "Pictures and tables", {"file": f"{step.name}/{name}"}))
    return items


def _overview_labels(steps: Sequence[StepFacts]) -> dict[str, str]:
    """Snakemake makes a switch of a label with two values, each in half of the entries, and shows one half (or
    fails, when an entry has no other half). A value that no other entry has prevents that."""
    counts = Counter(facts.status for facts in steps)
    seconds = sum(facts.run.get("seconds", 0) for facts in steps)
    return {
        "page": "overview",
        "status": ", ".join(f"{count} {status}" for status, count in counts.items()),
        "runtime": f"{duration(seconds)} in all",
    }


def _title(caller_path: str) -> str:
    return os.path.basename(caller_path).removesuffix(".py")


def _facts(session: Session, step: FrozenStep) -> StepFacts:
    record = session.plan.record(step)
    status = session.statuses()[step.output_path]
    info = read_info(step.output_path) or {}
    return StepFacts(
        name=step.name,
        description=step.description,
        function=step.function,
        output_path=step.output_path,
        version=record.version,
        config=record.config,
        dependencies=[session.plan.steps[index].output_path for index in step.dependencies],
        status=status.value if isinstance(status, Status) else "not run" if status is None else "damaged",
        run=info.get("run", {}),
    )


def _declared(step: FrozenStep) -> Iterator[tuple[str, str]]:
    """Name and local path of each file that the step declares and that is there."""
    if not step.report:
        return
    for name in _files_below(step.output_path):
        if any(fnmatch.fnmatch(name, pattern) for pattern in step.report):
            path = os.path.join(step.output_path, name)
            if name.endswith((".csv", ".tsv")):  # A browser would download these instead of showing them.
                page = spreadsheet_page(f"{step.name}/{name}", (read_bytes(path) or b"").decode(errors="replace"))
                yield name, _write(f"step-{step.index:05}-files/{name}", page)
            else:
                yield name, _fetch(step, name, path) if is_url(path) else path


def _files_below(output_path: str) -> list[str]:
    if is_url(output_path):
        import fsspec

        filesystem, root = fsspec.core.url_to_fs(output_path)
        return sorted(os.path.relpath(path, root) for path in filesystem.find(root))
    root = Path(output_path)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def _fetch(step: FrozenStep, name: str, path: str) -> str:
    local = str(_FOLDER / f"step-{step.index:05}-files" / name)
    write_atomic(local, read_bytes(path) or b"")
    return local


def _write(name: str, page: str) -> str:
    path = str(_FOLDER / f"{name}.html")
    write_atomic(path, page.encode())
    return path
