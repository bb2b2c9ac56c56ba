"""What tasks print, as Cloud Logging has it: entries of the log `batch_task_logs`, labelled with job and task."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from google.cloud.logging_v2 import types

from support.emulators.rpc.errors import invalid
from support.emulators.rpc.server import page_of

_COMPARISON = re.compile(
    r'\s*(?:(?P<log>logName)|labels\."?(?P<label>[\w.-]+?)"?|(?P<time>timestamp))\s*(?P<sign>=~|=|>=|>)\s*"(?P<value>[^"]*)"\s*'
)
_LARGEST_PAGE = 1000


@dataclass(frozen=True)
class Line:
    """One line that a task printed."""

    time: datetime
    project: str
    labels: dict[str, str]
    text: str

    @property
    def log(self) -> str:
        return f"projects/{self.project}/logs/batch_task_logs"


class Logs:
    """All lines, in the order in which they came."""

    def __init__(self) -> None:
        self._lines: list[Line] = []

    def reset(self) -> None:
        self._lines.clear()

    def add(self, project: str, labels: dict[str, str], text: str) -> None:
        self._lines.append(Line(datetime.now(UTC), project, labels, text))

    def entries(self, request: Any) -> Any:
        """The answer to ListLogEntries."""
        projects = {name.removeprefix("projects/") for name in request.resource_names}
        found = [line for line in self._lines if line.project in projects and _matches(line, request.filter)]
        if request.order_by == "timestamp desc":
            found.reverse()
        page, token = page_of(found, request.page_size, request.page_token, most=_LARGEST_PAGE)
        return types.ListLogEntriesResponse(
            entries=[
                types.LogEntry(log_name=line.log, timestamp=line.time, text_payload=line.text, labels=line.labels)
                for line in page
            ],
            next_page_token=token,
        )


def _matches(line: Line, text: str) -> bool:
    for part in re.split(r"\bAND\b", text) if text.strip() else ():
        comparison = _COMPARISON.fullmatch(part)
        if comparison is None:
            raise invalid(f"Unparseable filter: {text}")
        sign, value = comparison["sign"], comparison["value"]
        if comparison["time"]:
            moment = datetime.fromisoformat(value)
            if not (line.time > moment or (sign == ">=" and line.time == moment)):
                return False
            continue
        found = line.log if comparison["log"] else line.labels.get(comparison["label"], "")
        if not (re.search(value, found) if sign == "=~" else value == found):
            return False
    return True
