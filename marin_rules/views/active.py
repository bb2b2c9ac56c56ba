"""What is active, for people: a table of steps and a line for each run; the same as JSON for programs."""

from __future__ import annotations

import json
import os
from typing import Any

from marin_rules.active.active_step import ActiveStep
from marin_rules.active.arrays import element_counts
from marin_rules.active.processes import is_from_before_a_restart
from marin_rules.active.survey import ActiveRun, Survey
from marin_rules.clusters.open import CLUSTER_NAMES
from marin_rules.units import duration
from marin_rules.views.drivers import driver_fields, drivers_table, listed
from marin_rules.views.terminal import aligned, printable

_HEAD = ("step", "job", "state", "node", "elapsed", "attempt", "run")


def jobs_table(survey: Survey) -> str:
    """A row for each submitted driver, one for each step that runs or is queued, then a line for each run."""
    drivers = listed(survey.drivers)
    if not survey.steps and not survey.runs and not drivers:
        return "found nothing that is running or queued" if survey.silent_clusters else "nothing is running or queued"
    blocks = [drivers_table(drivers, survey.now)] if drivers else []
    blocks += ["\n".join(aligned([_HEAD, *map(_row, survey.steps)]))] if survey.steps else []
    blocks += ["\n".join(map(_run_line, survey.runs))] if survey.runs else []
    # Some of it comes from anyone who can write to a prefix: hosts in leases, ids of runs in info files.
    return printable("\n\n".join(blocks))


def jobs_json(survey: Survey) -> str:
    content = {
        "drivers": [driver_fields(driver) for driver in survey.drivers],
        "steps": [_step_fields(found) for found in survey.steps],
        "runs": [_run_fields(active) for active in survey.runs],
        "silent_clusters": dict(survey.silent_clusters),
    }
    return json.dumps(content, indent=2)


def state_of(found: ActiveStep) -> str:
    """The state of a step: its cluster's word for its job, or RUNNING; and anything strange about it."""
    job = found.job
    state = "RUNNING" if job is None else job.word
    if found.tasks is not None or found.elements:
        state = str(found.tasks or _elements_in_words(found))
    remarks = [] if job is None or not found.is_queued or not job.reason else [job.reason]
    if found.silent_seconds is not None:
        remarks.append(f"no heartbeat for {duration(found.silent_seconds)}")
    if found.driver_is_gone:
        remarks.append("driver gone")
    return f"{state} ({', '.join(remarks)})" if remarks else state


def _elements_in_words(found: ActiveStep) -> str:
    """The states of the elements of an array; nothing for a step that has none."""
    return ", ".join(f"{count} {word}" for word, count in element_counts(found.elements).items())


def _row(found: ActiveStep) -> tuple[str, ...]:
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


def _job(found: ActiveStep) -> str:
    if found.job is not None:
        return f"{found.job.cluster} {found.job.id}"
    pid = _pid(found)
    return "-" if pid is None else f"pid {pid}"


def _id_at(cluster: str, found: ActiveStep) -> str | None:
    return found.job.id if found.job is not None and found.job.cluster == cluster else None


def _pid(found: ActiveStep) -> int | None:
    return None if found.lease is None or found.lease.owner is None else found.lease.owner.pid


def _run_line(active: ActiveRun) -> str:
    run = active.run
    driver = f"pid {run.driver.pid} on {run.driver.host}"
    if run.driver_is_gone:
        driver += ", gone"
    elif is_from_before_a_restart(run.driver):
        driver += ", from before a restart"
    what = active.trouble or f"{active.done} {'step' if active.done == 1 else 'steps'} done, {active.left} left"
    return f"{run.id} ({os.path.basename(run.experiment)}, driver {driver}): {what}"


def _step_fields(found: ActiveStep) -> dict[str, Any]:
    return {
        "step": found.step.name,
        "key": found.step.key,
        "output_path": found.step.output_path,
        "run": found.run,
        **{f"{name}_job": _id_at(name, found) for name in CLUSTER_NAMES},
        "pid": _pid(found),
        "state": "RUNNING" if found.job is None else found.job.word,
        "reason": found.job.reason if found.job is not None and found.is_queued else "",
        "elements": element_counts(found.elements) or None,
        "node": found.node,
        "seconds": found.seconds,
        "attempt": found.attempt,
        "driver_gone": found.driver_is_gone,
    }


def _run_fields(active: ActiveRun) -> dict[str, Any]:
    run = active.run
    return {
        "id": run.id,
        "experiment": run.experiment,
        "prefix": run.prefix,
        "started": run.started,
        "driver": {"pid": run.driver.pid, "host": run.driver.host, "gone": run.driver_is_gone},
        "done": active.done,
        "left": active.left,
        "trouble": active.trouble,
    }
