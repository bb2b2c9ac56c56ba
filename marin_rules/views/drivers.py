"""Submitted drivers, for people: a table, and a sentence about the end of one; the same as JSON for programs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from marin_rules.active.drivers import ActiveDriver
from marin_rules.units import duration
from marin_rules.views.terminal import aligned

_HEAD = ("driver", "name", "job", "state", "node", "elapsed", "experiment")


def listed(drivers: Iterable[ActiveDriver]) -> list[ActiveDriver]:
    """Those that have not ended, and those that ended without a record, until somebody stops them."""
    return [driver for driver in drivers if driver.end is None]


def drivers_table(drivers: Sequence[ActiveDriver], now: float) -> str:
    """A row for each."""
    return "\n".join(aligned([_HEAD, *(_row(driver, now) for driver in drivers)]))


def driver_fields(driver: ActiveDriver) -> dict[str, Any]:
    record, holder = driver.record, driver.holder
    owner = None if holder is None else holder.owner
    return {
        "id": record.id,
        "name": record.name,
        "command": list(record.command),
        "experiment": record.experiment,
        "submitted": record.submitted,
        "cluster": None if holder is None else holder.cluster,
        "job": None if holder is None else holder.job,
        "pid": None if owner is None else owner.pid,
        "host": None if owner is None else owner.host,
        "state": driver.state,
        "log": record.log_path,
    }


def how_it_ended(driver: ActiveDriver) -> str:
    """A sentence about a driver that is over."""
    record = driver.record
    if driver.end is None and not record.is_asked_to_stop:
        return (
            f"driver {record.id} is gone: it was killed, or cancelled before it ran, and could not say how the run"
            " ended. Finished steps are kept: submit it again to continue, or end what is left of it with `marin-rules"
            f" jobs stop {record.id}`"
        )
    if driver.exit_code == 0:
        return f"driver {record.id}: done"
    if driver.end is None or driver.end.stopped:
        return f"driver {record.id}: stopped"
    return f"driver {record.id}: failed with exit code {driver.exit_code}"


def _row(driver: ActiveDriver, now: float) -> tuple[str, ...]:
    record, holder, job = driver.record, driver.holder, driver.job
    where, node, seconds = "-", "-", None
    if holder is not None and holder.owner is not None:
        where, node, seconds = f"pid {holder.owner.pid}", holder.owner.host, now - record.submitted
    elif holder is not None:
        where = f"{holder.cluster} {holder.job}"
        node, seconds = (job.nodes or "-", job.seconds) if job is not None else ("-", None)
    elapsed = "-" if seconds is None or node == "-" else duration(max(0.0, seconds))
    return (record.id, record.name or "-", where, driver.state, node, elapsed, os.path.basename(record.experiment))
