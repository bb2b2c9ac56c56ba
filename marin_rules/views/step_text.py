"""One step as text: what it is, its outcome, what it depends on, and the end of its log."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from marin_rules.clusters.prices import recorded_cost
from marin_rules.errors import MarinRulesError
from marin_rules.state.recorded_job import recorded_job
from marin_rules.state.status import CorruptStatusError, read_status
from marin_rules.state.step_lease import peek
from marin_rules.state.step_log import last_lines, log_path
from marin_rules.state.task_records import stored_counts
from marin_rules.state.written_steps import WrittenStep, dependents
from marin_rules.storage.leases.record import CorruptLeaseError, describe


def state_at(path: str) -> str:
    """The status of the step at a path, in a word."""
    try:
        status = read_status(path)
    except CorruptStatusError as error:
        return f"damaged ({error})"
    return "not run" if status is None else str(status)


def step_text(step: WrittenStep, known: Sequence[WrittenStep], *, log_lines: int) -> str:
    """Everything known about a step; `known` are the other steps below its prefix."""
    fields = step.fields or {}
    run: dict[str, Any] = fields.get("run") or {}
    job = recorded_job(run)
    rows = [
        ("step", step.name),
        ("path", step.output_path),
        ("status", state_at(step.output_path)),
        ("tasks", _tasks(step.output_path)),
        ("held by", _holder(step.output_path)),
        ("function", fields.get("fn_name")),
        ("description", fields.get("description")),
        ("experiment", step.experiment),
        ("run", run.get("id")),
        ("attempt", run.get("attempt")),
        ("started", run.get("started")),
        ("finished", run.get("finished")),
        ("seconds", run.get("seconds")),
        ("cost", recorded_cost(run)),
        ("ran on", run.get("host") if job is None else job.place),
        ("commit", run.get("git_commit")),
        ("error", run.get("error")),
        ("version", fields.get("version_digest")),
    ]
    lines = [f"{name:<12} {value}" for name, value in rows if value is not None]
    for title in ("config", "version"):
        if fields.get(title) is not None:
            lines += ["", f"{title}:", *_indented(fields[title])]
    uses = [(path, state_at(path)) for path in step.dependencies]
    used = [(other.output_path, state_at(other.output_path)) for other in dependents(known, step.output_path)]
    for title, others in (("depends on", uses), ("used by", used)):
        if others:
            lines += ["", f"{title}:", *(f"  {path}  {state}" for path, state in others)]
    log = last_lines(step.output_path, log_lines) if log_lines > 0 else []
    if log:
        lines += ["", f"end of {log_path(step.output_path)}:", *(f"  {line}" for line in log)]
    return "\n".join(lines)


def _holder(path: str) -> str | None:
    try:
        record = peek(path)
    except CorruptLeaseError:
        return "unknown: its lease is damaged"
    return None if record is None else describe(record, time.time())


def _tasks(path: str) -> str | None:
    try:
        counts = stored_counts(path)
    except MarinRulesError as error:
        return str(error)
    return None if counts is None else str(counts)


def _indented(value: Any) -> list[str]:
    return [f"  {line}" for line in json.dumps(value, indent=2, ensure_ascii=False).splitlines()]
