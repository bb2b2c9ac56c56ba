"""A plan judged by what is stored of its steps: statuses, versions, leases, infos. Only reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.assessment import Assessment, StatusOrError, assess
from marin_rules.state.info import check_version, info_path, read_info
from marin_rules.state.status import status_path
from marin_rules.state.step_lease import peek
from marin_rules.storage.files import modified_time, read_bytes
from marin_rules.storage.leases.record import LeaseRecord
from marin_rules.units import timestamp
from marin_rules.urls import is_url


def assess_stored(plan: FrozenPlan, statuses: Mapping[str, StatusOrError], forced: Collection[int] = ()) -> Assessment:
    """Judge every step, given all statuses by output path. `forced` steps run although they are done."""
    _check_versions(plan, statuses)
    return assess(plan, statuses, forced=forced, lease_of=_live_lease, failed_at=_last_change)


def _check_versions(plan: FrozenPlan, statuses: Mapping[str, StatusOrError]) -> None:
    """Refuse a path that holds another version.

    On an object store, where each look is a request, only overrides are looked at here: without one, two versions share
    a path once in 16.8 million times. The worker looks at whatever it runs.
    """
    used = [step for step in plan.steps if statuses.get(step.output_path) is not None]
    overrides = [step for step in used if step.is_overridden and is_url(step.output_path)]
    objects: dict[str, bytes | None] = {}
    if overrides:
        from marin_rules.storage.bulk import read_many

        objects = read_many(info_path(step.output_path) for step in overrides)
    for step in used:
        path = info_path(step.output_path)
        if path in objects:
            check_version(plan, step, objects[path])
        elif not is_url(path):
            check_version(plan, step, read_bytes(path))


def _live_lease(step: FrozenStep) -> LeaseRecord | None:
    record = peek(step.output_path)
    if record is None or (record.owner is not None and record.owner.is_dead_here()):
        return None
    return record


def _last_change(step: FrozenStep) -> str | None:
    """When the step last ended, from its info, or else from the age of its status."""
    info = read_info(step.output_path) or {}
    finished = info.get("run", {}).get("finished")
    if finished is not None:
        return str(finished)
    changed = modified_time(status_path(step.output_path))
    return None if changed is None else timestamp(changed)
