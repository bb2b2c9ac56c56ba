"""The runs of this user: a small file for each, from its start to its end, so that others can find and stop it.

The files are in the user's own state folder (on a cluster every node sees it). They are only for people: a step's lease
decides about it. A file that stays behind means that its driver was killed; see `active.survey` for when it is removed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote

from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.run import Run
from marin_rules.settings.user_folders import state_folder
from marin_rules.storage.files import modified_time, read_bytes, write_atomic
from marin_rules.storage.leases.owner import Owner


@dataclass(frozen=True)
class RegisteredRun:
    """A run that was started and has not ended, as far as its driver could record."""

    id: str
    experiment: str
    prefix: str
    plan_path: str
    working_directory: str
    started: str
    driver: Owner
    seen: float = math.inf
    """When its driver last gave a sign of life (see `run_presence`), by the clock of the file system."""

    cluster: str | None = None
    """The name of the cluster's file that was chosen for it."""

    digest: str | None = None
    """The digest of the plan: anyone who can write to its bucket could replace it."""

    driver_has_ended: bool = False
    """Whether somebody who looked knows so of a driver whose process cannot be seen: that of a job which has ended."""

    @property
    def driver_is_gone(self) -> bool:
        """Whether the driver certainly ended; one on another machine may still be there."""
        return self.driver_has_ended or self.driver.is_dead_here()

    def to_bytes(self) -> bytes:
        fields = {name: getattr(self, name) for name in (*_TEXTS, *_OPTIONAL)}
        return json.dumps({**fields, "driver": self.driver.to_fields()}, indent=2).encode()

    @classmethod
    def parse(cls, data: bytes, seen: float = math.inf) -> Self:
        """The run in the bytes of its file; `ValueError` for anything else. Fields of later versions are ignored."""
        fields = json.loads(data)
        driver = fields.get("driver") if isinstance(fields, dict) else None
        if not isinstance(driver, dict):
            raise ValueError("not a run with a driver")
        texts: dict[str, Any] = {name: _text(fields, name) for name in _TEXTS}
        texts |= {name: fields[name] for name in _OPTIONAL if isinstance(fields.get(name), str)}
        return cls(**texts, driver=Owner.from_fields(driver), seen=seen)


_TEXTS = ("id", "experiment", "prefix", "plan_path", "working_directory", "started")
_OPTIONAL = ("cluster", "digest")


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a string: {value!r}")
    return value


def register(plan: FrozenPlan) -> None:
    """Record that this process drives a run of `plan`. A mere convenience: a full home directory stops nothing."""
    run = plan.run
    registered = RegisteredRun(
        id=run.id,
        experiment=os.path.abspath(run.caller_path),
        prefix=run.prefix,
        plan_path=run.plan_path if "://" in run.plan_path else os.path.abspath(run.plan_path),
        working_directory=run.working_directory,
        started=run.created_date,
        driver=Owner.current(),
        cluster=run.cluster,
        digest=plan.digest,
    )
    try:
        write_atomic(_path(run.id), registered.to_bytes())
    except OSError:
        return


def touch(run: Run | RegisteredRun) -> bool:
    """Give a sign of life for a run; False if its file is gone."""
    try:
        os.utime(_path(run.id))
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def forget(run: Run | RegisteredRun) -> None:
    try:
        os.unlink(_path(run.id))
    except OSError:
        return


def find_run(run_id: str) -> RegisteredRun | None:
    return _read(_path(run_id))


def registered_runs() -> list[RegisteredRun]:
    """All runs that are registered, oldest first."""
    return sorted(_all_runs(), key=lambda run: run.started)


def _all_runs() -> Iterator[RegisteredRun]:
    try:
        names = os.listdir(_folder())
    except OSError:
        return
    for name in names:
        run = _read(os.path.join(_folder(), name)) if name.endswith(".json") else None
        if run is not None:
            yield run


def _read(path: str) -> RegisteredRun | None:
    try:
        data, seen = read_bytes(path), modified_time(path)
        return None if data is None or seen is None else RegisteredRun.parse(data, seen)
    except (OSError, ValueError, RecursionError):
        return None  # Not ours, truncated, or of another version; the other runs are shown anyway.


def _folder() -> str:
    return os.path.join(state_folder(), "runs")


def _path(run_id: str) -> str:
    return os.path.join(_folder(), f"{quote(run_id, safe='')}.json")
