"""Reads what is known about the steps of a plan, for the report. What cannot be read is reported but stops nothing."""

from __future__ import annotations

import base64
import fnmatch
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.assessment import StatusOrError
from marin_rules.state.info import info_path, parse_info
from marin_rules.state.status import ARTIFACT_FILE, CorruptStatusError, Status
from marin_rules.state.step_log import last_lines, log_path
from marin_rules.state.task_records import FOLDER as TASKS_FOLDER
from marin_rules.state.task_records import stored_counts
from marin_rules.storage.files import read_bytes
from marin_rules.urls import is_url
from marin_rules.views.spreadsheet import SUFFIXES, Table, read_table
from marin_rules.views.step_facts import TRACEBACK_LINES, Picture, Reference, StepFacts, log_end

_ARTIFACT_BYTES = 1 << 20
_PICTURES = {".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}
_PICTURE_BYTES = 2 << 20
"""A larger one is among the files of the report, and not on the pages of its step."""

_TABLE_BYTES = 256 << 10
_TABLE_ROWS = 40
"""What a step's page shows of a table; all of it is among the files of the report."""


def gather(
    plan: FrozenPlan, statuses: Mapping[str, StatusOrError], page_of: Callable[[FrozenStep], str]
) -> list[StepFacts]:
    """The facts about every step that is part of the experiment, in the order of the plan."""
    steps = [step for step in plan.steps if step.needed]
    ran = [step for step in steps if statuses[step.output_path] is not None]
    files = _Files([path for step in ran for path in (info_path(step.output_path), _artifact_path(step))])
    users: dict[int, list[FrozenStep]] = {}
    for step in steps:
        for index in step.dependencies:
            users.setdefault(index, []).append(step)

    def reference(step: FrozenStep) -> Reference:
        return Reference(step.index, step.name, step.output_path, page_of(step) if step.needed else None)

    def facts(step: FrozenStep) -> StepFacts:
        record = plan.record(step)
        status = statuses[step.output_path]
        troubles: list[str] = [str(status)] if isinstance(status, CorruptStatusError) else []
        run = _told(troubles, lambda: _run(files, step, status)) or {}
        names = _told(troubles, lambda: files_below(step.output_path)) if step.report and status is not None else None
        matches = {pattern: fnmatch.filter(names or (), pattern) for pattern in step.report}
        shown = sorted({name for found in matches.values() for name in found})
        return StepFacts(
            index=step.index,
            page=page_of(step),
            name=step.name,
            description=step.description,
            function=step.function,
            output_path=step.output_path,
            version=record.version,
            config=record.config,
            dependencies=[reference(plan.steps[index]) for index in step.dependencies],
            dependents=[reference(user) for user in users.get(step.index, ())],
            status=_word(status),
            run=run,
            tasks=_told(troubles, lambda: _tasks(step, status)) or "",
            log_path=log_path(step.output_path),
            log=_told(troubles, lambda: _log(step, status)) or (),
            returned=_told(troubles, lambda: _returned(files, step, status)),
            report_files=shown,
            pictures=_told(troubles, lambda: _pictures(step, shown)) or (),
            tables=_told(troubles, lambda: _tables(step, shown)) or (),
            missing_report_files=[name for name, found in matches.items() if not found and status is Status.SUCCESS],
            troubles=troubles,
        )

    return [facts(step) for step in steps]


def _tasks(step: FrozenStep, status: StatusOrError) -> str:
    """How far an array step is; for one that is done, nothing has to be read."""
    if step.tasks is None or status is None:
        return ""
    return f"{step.tasks}/{step.tasks}" if status is Status.SUCCESS else str(stored_counts(step.output_path) or "")


def files_below(output_path: str) -> list[str]:
    """The files of a step, relative to its output path."""
    if is_url(output_path):
        import fsspec

        filesystem, root = fsspec.core.url_to_fs(output_path)
        names = (os.path.relpath(path, root) for path in filesystem.find(root))
    else:
        folder = Path(output_path)
        names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in names if not name.startswith(f"{TASKS_FOLDER}/"))  # Records, not data.


def _pictures(step: FrozenStep, names: Sequence[str]) -> list[Picture]:
    """In an `<img>` no picture can run a script or fetch anything: the page may show it whoever wrote it."""
    found = []
    for name in names:
        kind = _PICTURES.get(os.path.splitext(name)[1].lower())
        data = None if kind is None else read_bytes(os.path.join(step.output_path, name))
        if data and len(data) <= _PICTURE_BYTES:
            found.append(Picture(name, f"data:{kind};base64,{base64.b64encode(data).decode()}"))
    return found


def _tables(step: FrozenStep, names: Sequence[str]) -> list[Table]:
    found = []
    for name in names:
        if name.endswith(SUFFIXES):
            data = read_bytes(os.path.join(step.output_path, name))
            if data and len(data) <= _TABLE_BYTES:
                found.append(read_table(name, data.decode(errors="replace"), _TABLE_ROWS))
    return found


class _Files:
    """Small files: objects are fetched all at once, local ones when they are asked for."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._objects: Mapping[str, bytes | None] = {}
        if urls := [path for path in paths if is_url(path)]:
            from marin_rules.storage.bulk import read_many

            self._objects = read_many(urls)

    def read(self, path: str) -> bytes | None:
        return self._objects[path] if path in self._objects else read_bytes(path)


def _told[Result](troubles: list[str], read: Callable[[], Result]) -> Result | None:
    """What `read` reads; None if it cannot, with the reason in `troubles`."""
    try:
        return read()
    except (MarinRulesError, OSError, ValueError, RecursionError) as error:
        troubles.append(str(error))
        return None


def _word(status: StatusOrError) -> str:
    return status.value if isinstance(status, Status) else "not run" if status is None else "damaged"


def _run(files: _Files, step: FrozenStep, status: StatusOrError) -> dict[str, Any]:
    path = info_path(step.output_path)
    data = None if status is None else files.read(path)
    run: dict[str, Any] = {} if data is None else parse_info(data, path).get("run", {})
    return run


def _artifact_path(step: FrozenStep) -> str:
    return os.path.join(step.output_path, ARTIFACT_FILE)


def _returned(files: _Files, step: FrozenStep, status: StatusOrError) -> Any:
    """What the function returned; of a very large value only where it is."""
    data = files.read(_artifact_path(step)) if status is Status.SUCCESS else None
    if data is None:
        return None
    if len(data) > _ARTIFACT_BYTES:
        return f"{len(data):,} bytes in {_artifact_path(step)}"
    try:
        return json.loads(data)
    except ValueError as error:
        raise MarinRulesError(f"{_artifact_path(step)} is not JSON: {error}") from error


def _log(step: FrozenStep, status: StatusOrError) -> list[str]:
    """The end of the log of a step that is not done."""
    if status in (None, Status.SUCCESS):
        return []
    return log_end(last_lines(step.output_path, TRACEBACK_LINES), failed=status is Status.FAILED)
