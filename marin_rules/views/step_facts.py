"""What the report shows about a step, gathered in one place; nothing is read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marin_rules.clusters.prices import Cost, recorded_cost
from marin_rules.state.recorded_job import recorded_job
from marin_rules.units import duration
from marin_rules.views.spreadsheet import Table

_LOG_LINES = 60
TRACEBACK_LINES = 300
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Reference:
    """Another step, and its page if it has one."""

    index: int
    name: str
    output_path: str
    page: str | None


@dataclass(frozen=True)
class Picture:
    """A picture that a step declares for the report, with its contents as a `data:` URL."""

    name: str
    contents: str


@dataclass(frozen=True)
class StepFacts:
    """What a page shows about a step."""

    name: str
    description: str | None
    function: str
    output_path: str
    version: Mapping[str, Any]
    """The versioned part of the config: dotted path -> value."""

    config: Any
    dependencies: Sequence[Reference]
    status: str
    """The status, or "not run"."""

    run: Mapping[str, Any]
    """What the worker wrote about the last attempt; empty if there was none."""

    tasks: str = ""
    """How far an array step is: `41/64, 20 running, 3 failed`; empty for any other step."""

    index: int = 0
    page: str | None = None
    """Under which name the report has its page."""

    dependents: Sequence[Reference] = ()
    log_path: str = ""
    log: Sequence[str] = ()
    """The last lines of its last attempt."""

    returned: Any = None
    """What its function returned, as plain data."""

    report_files: Sequence[str] = ()
    missing_report_files: Sequence[str] = ()
    """Names and patterns declared for the report of a step that ran, for which there is no file."""

    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    """Those of the report files that its page shows."""

    troubles: Sequence[str] = field(default=())
    """What could not be read about the step."""

    @property
    def seconds(self) -> float | None:
        seconds = self.run.get("seconds")
        return float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None

    @property
    def runtime(self) -> str:
        return "" if self.seconds is None else duration(self.seconds)

    @property
    def cost(self) -> Cost | None:
        """What its last attempt cost; None if that is not known."""
        return recorded_cost(self.run)

    @property
    def finished(self) -> str:
        """When its last attempt ended, as its worker wrote it; empty where that is not known."""
        finished = self.run.get("finished")
        return finished if isinstance(finished, str) else ""

    @property
    def error(self) -> str:
        return str(self.run.get("error") or "")

    @property
    def place(self) -> str:
        """Where it ran: the machines of its job, or the host of its worker."""
        job = recorded_job(self.run)
        return str(self.run.get("host") or "") if job is None else job.place

    @property
    def gpus(self) -> str:
        """The GPUs that it saw, by their numbers on the first machine."""
        job = recorded_job(self.run)
        if job is not None:
            return job.gpus
        gpus = self.run.get("gpus")
        return ", ".join(map(str, gpus)) if isinstance(gpus, list) else ""


def log_end(lines: Sequence[str], *, failed: bool) -> list[str]:
    """The end of a log; that of a failed step from its last traceback on, if that is longer."""
    first = max(0, len(lines) - _LOG_LINES)
    if failed:
        begun = [number for number, line in enumerate(lines) if line.lstrip().startswith(_TRACEBACK)]
        if begun:
            first = min(first, max(begun[-1], len(lines) - TRACEBACK_LINES))
    return list(lines[first:])
