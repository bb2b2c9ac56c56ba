"""A plan judged by what is stored about its steps: statuses, versions, leases, infos. Only reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.assessment import Assessment, State, StatusOrError, assess
from marin_rules.state.info import check_version, info_path, read_info
from marin_rules.state.status import Status, read_statuses, status_path
from marin_rules.state.step_lease import peek
from marin_rules.state.task_records import Layout, TaskPlace, TaskRecord, check_layout, read_layout, read_records
from marin_rules.storage.files import modified_time, read_bytes
from marin_rules.storage.leases.record import LeaseRecord
from marin_rules.units import timestamp
from marin_rules.urls import is_url


def stored_statuses(plan: FrozenPlan) -> dict[str, StatusOrError]:
    """The status of each step, by its output path, read in bulk; none at all if the store could not be asked."""
    paths = [step.output_path for step in plan.steps]
    return dict.fromkeys(paths) if plan.unseen else read_statuses(paths)


def assess_stored(plan: FrozenPlan, statuses: Mapping[str, StatusOrError], forced: Collection[int] = ()) -> Assessment:
    """Judge every step, given all statuses by output path. `forced` steps run even if they are done."""
    if plan.unseen:
        return assess(plan, statuses, forced=forced)
    _check_versions(plan, statuses)
    tasks = _BegunTasks()
    assessment = assess(
        plan,
        statuses,
        forced=forced,
        lease_of=lambda step: _live_lease(step) or tasks.live_lease(step),
        failed_at=_last_change,
        progress_of=tasks.progress,
    )
    for verdict in assessment.verdicts:
        is_begun = statuses[verdict.step.output_path] not in (None, Status.SUCCESS)
        if verdict.state is State.RUN and is_begun and not verdict.anew:
            tasks.check(verdict.step)
    return assessment


class _BegunTasks:
    """The state of the tasks of steps that were begun and are not done."""

    def __init__(self) -> None:
        self._layouts: dict[int, Layout | None] = {}
        self._records: dict[int, dict[int, TaskRecord]] = {}

    def check(self, step: FrozenStep) -> None:
        """Refuse a step that was begun with another number of tasks."""
        check_layout(step.name, step.output_path, step.tasks, self._layout(step))

    def progress(self, step: FrozenStep) -> str | None:
        """How far it is, for people."""
        done = sum(record.is_done for record in self._of(step).values())
        return f"{done} of {step.tasks} tasks are done" if done else None

    def live_lease(self, step: FrozenStep) -> LeaseRecord | None:
        """Who works on one of the tasks, if nobody has the step as a whole."""
        layout = self._layout(step)
        running = [task for task, record in self._of(step).items() if record.status is Status.RUNNING]
        places = (TaskPlace(step.output_path, layout.round, task) for task in running if layout is not None)
        return next((holder for place in places if (holder := place.holder()) is not None), None)

    def _layout(self, step: FrozenStep) -> Layout | None:
        if step.index not in self._layouts:
            self._layouts[step.index] = read_layout(step.output_path)
        return self._layouts[step.index]

    def _of(self, step: FrozenStep) -> dict[int, TaskRecord]:
        layout = self._layout(step)
        if layout is None or layout.tasks != step.tasks:
            return {}
        if step.index not in self._records:
            self._records[step.index] = read_records(step.output_path, layout.round, range(layout.tasks))
        return self._records[step.index]


def _check_versions(plan: FrozenPlan, statuses: Mapping[str, StatusOrError]) -> None:
    """Refuse a path that holds another version.

    On an object store, where each check is a request, only overrides are checked here: without one, two versions share
    a path once in 16.8 million times. The worker checks whatever it runs.
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
