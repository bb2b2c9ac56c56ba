"""What is under way, for people: a table of steps and a line for each run; the same as JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

from marin_rules.active.active_step import UnderWay
from marin_rules.active.processes import is_from_before_a_restart
from marin_rules.active.survey import RunInView, Survey
from marin_rules.units import duration

_HEAD = ("step", "job", "state", "node", "elapsed", "attempt", "run")


def jobs_table(survey: Survey) -> str:
    """A row for each step that runs or is queued, then a line for each run."""
    if not survey.under_way and not survey.runs:
        return "nothing is under way"
    blocks = ["\n".join(_aligned([_HEAD, *map(_row, survey.under_way)]))] if survey.under_way else []
    blocks += ["\n".join(map(_run_line, survey.runs))] if survey.runs else []
    return "\n\n".join(blocks)


def jobs_json(survey: Survey) -> str:
    content = {
        "steps": [_step_fields(found) for found in survey.under_way],
        "runs": [_run_fields(view) for view in survey.runs],
    }
    return json.dumps(content, indent=2)


def state_of(found: UnderWay) -> str:
    """What a step is at: Slurm's word for its job, or RUNNING; and what is strange about it."""
    job = found.job
    state = "RUNNING" if job is None else job.state
    remarks = [] if job is None or not found.is_queued or not job.reason else [job.reason]
    if found.silent_seconds is not None:
        remarks.append(f"no heartbeat for {duration(found.silent_seconds)}")
    if found.driver_is_gone:
        remarks.append("driver gone")
    return f"{state} ({', '.join(remarks)})" if remarks else state


def _row(found: UnderWay) -> tuple[str, ...]:
    seconds = found.seconds
    return (
        found.step.name,
        _job(found),
        state_of(found),
        found.node or "-",
        "-" if seconds is None else duration(seconds),
        "-" if found.attempt is None else str(found.attempt),
        found.run,
    )


def _job(found: UnderWay) -> str:
    if found.job is not None:
        return f"slurm {found.job.id}"
    pid = _pid(found)
    return "-" if pid is None else f"pid {pid}"


def _pid(found: UnderWay) -> int | None:
    return None if found.lease is None or found.lease.owner is None else found.lease.owner.pid


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _run_line(view: RunInView) -> str:
    run = view.run
    driver = f"pid {run.driver.pid} on {run.driver.host}"
    if run.driver_is_gone:
        driver += ", gone"
    elif is_from_before_a_restart(run.driver):
        driver += ", from before a restart"
    what = view.trouble or f"{view.done} {'step' if view.done == 1 else 'steps'} done, {view.left} left"
    return f"{run.id} ({os.path.basename(run.experiment)}, driver {driver}): {what}"


def _step_fields(found: UnderWay) -> dict[str, Any]:
    return {
        "step": found.step.name,
        "key": found.step.key,
        "output_path": found.step.output_path,
        "run": found.run,
        "slurm_job": None if found.job is None else found.job.id,
        "pid": _pid(found),
        "state": "RUNNING" if found.job is None else found.job.state,
        "reason": found.job.reason if found.job is not None and found.is_queued else "",
        "node": found.node,
        "seconds": found.seconds,
        "attempt": found.attempt,
        "driver_gone": found.driver_is_gone,
    }


def _run_fields(view: RunInView) -> dict[str, Any]:
    run = view.run
    return {
        "id": run.id,
        "experiment": run.experiment,
        "prefix": run.prefix,
        "started": run.started,
        "driver": {"pid": run.driver.pid, "host": run.driver.host, "gone": run.driver_is_gone},
        "done": view.done,
        "left": view.left,
        "trouble": view.trouble,
    }
