"""An array step whose tasks are jobs of a cluster: how it begins and ends without a worker that holds the whole step.

Nobody holds the step's lease while its tasks run; each task has its own. The driver takes the lease for a moment to
begin the step (`begin_array`), and whoever sees that nothing is left to do takes it to end the step (`end_array`): the
worker of the last task, with or without a driver, or the driver. Both may; the step is ended once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from marin_rules.clusters.prices import cost_of_tasks
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.info import info_path, parse_info
from marin_rules.state.status import Status, parse_status, read_status
from marin_rules.state.step_log import StepLog, attempt_line
from marin_rules.state.task_records import (
    FOLDER,
    TaskHeldError,
    TaskPlace,
    TaskRecord,
    joined_artifacts,
    read_layout,
    read_records,
)
from marin_rules.storage.leases.held import held
from marin_rules.storage.leases.lease import LeaseLostError
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import LeaseRecord
from marin_rules.storage.leases.store import ChangedError
from marin_rules.storage.patience import patiently
from marin_rules.units import parse_timestamp, timestamp
from marin_rules.worker.attempt_facts import attempt_facts
from marin_rules.worker.conclusion import Conclusion
from marin_rules.worker.step_books import StepBooks
from marin_rules.worker.step_call import Outcome

_REFUSALS = 5
"""How often somebody may change the status of a step that we are about to begin. Usually that is their last write."""

_PAUSE_SECONDS = 0.5
_PATIENCE_LIFETIMES = 3
"""Between two looks at a lease that somebody else has, and for how many of its lifetimes: a driver that only looks, a
worker of the whole step, which will end it itself, or one that died."""


@dataclass(frozen=True)
class Begun:
    """An array step that is running."""

    round: int
    """Of its tasks."""


def begin_array(plan: FrozenPlan, step: FrozenStep) -> Begun | LeaseRecord | None:
    """Begin an array step, or continue it; returns who has it, if somebody does; None if it is done."""
    owner = Owner.current()
    books = StepBooks(plan, step, owner, in_job=True, patiently=patiently)
    holder = patiently(books.lease.try_acquire)
    if holder is not None:
        return holder
    with held(books.lease):
        try:
            if not _take(books):
                return None
        except TaskHeldError as error:
            return error.holder
        books.begin(attempt_facts(plan.run, owner, books.attempts + 1, time.time()))
        patiently(books.note_start)
    return Begun(books.round)


def _take(books: StepBooks) -> bool:
    """As `StepBooks.take`; looks again if somebody, whose lease we took over, changed the status in this moment, and
    waits some time for a worker on a task of a round that is to be left behind."""
    refusals = 0
    give_up = time.monotonic() + _PATIENCE_LIFETIMES * books.lease.lifetime
    while True:
        try:
            return books.take(waited=False)
        except ChangedError:
            refusals += 1
            if refusals > _REFUSALS:
                raise
        except TaskHeldError:
            if time.monotonic() > give_up:
                raise
        time.sleep(_PAUSE_SECONDS)


def round_is_over(step: FrozenStep, number: int) -> bool:
    """Whether a round of tasks other than this one is the current one."""
    layout = read_layout(step.output_path)
    return layout is None or (layout.tasks, layout.round) != (step.tasks, number)


def end_if_all_done(plan: FrozenPlan, step: FrozenStep, number: int, *, after: int, say: Callable[[str], None]) -> bool:
    """End the step if all of its tasks are done; False if not.

    It begins to look `after` the task that was just done: the next one is mostly not done yet, and so it seldom takes
    more than a look or two, however many tasks there are.
    """
    assert step.tasks is not None
    order = [(after + offset) % step.tasks for offset in range(1, step.tasks)]
    for task in order[:_ONE_BY_ONE]:
        record = TaskPlace(step.output_path, number, task).read()
        if record is None or not record.is_done:
            return False
    records = read_records(step.output_path, number, range(step.tasks))
    if not all(task in records and records[task].is_done for task in range(step.tasks)):
        return False
    return end_array(plan, step, number, done(records), say=say)


_ONE_BY_ONE = 3
"""This many records are checked one by one before all are requested."""


def done(records: Mapping[int, TaskRecord]) -> Conclusion:
    """The outcome of a step whose tasks are all done; `records` has all of them."""
    artifacts = [records[task].fields.get("artifact") for task in range(len(records))]
    cost = cost_of_tasks(record.fields for record in records.values())
    return Conclusion(Status.SUCCESS, Outcome(artifact=joined_artifacts(artifacts)), cost=cost)


def end_array(
    plan: FrozenPlan,
    step: FrozenStep,
    number: int,
    conclusion: Conclusion,
    *,
    say: Callable[[str], None],
    waits: bool = True,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Record the outcome of the step as a whole; False if that is left to somebody else.

    `waits`: some time for another holder of the step's lease.
    """
    owner = Owner.current()
    books = StepBooks(plan, step, owner, in_job=True, patiently=partial(patiently, say=say))
    lease = books.lease
    give_up = time.monotonic() + _PATIENCE_LIFETIMES * lease.lifetime
    while patiently(lease.try_acquire, say=say) is not None:
        if read_status(step.output_path) is Status.SUCCESS:
            return True
        if not waits:
            return False
        if time.monotonic() > give_up:
            say(f"step {step.name}: all tasks have ended, and another worker holds the step and will end it")
            return False
        sleep(_PAUSE_SECONDS)
    with held(lease):
        data = patiently(lambda: lease.read(books.status_path), say=say)
        if data is not None and parse_status(data, books.status_path) is Status.SUCCESS:
            return True
        if round_is_over(step, number):
            return False
        try:
            _write(plan, step, books, owner, conclusion, say)
        except (ChangedError, LeaseLostError):
            return False  # Somebody whose lease we took over has just written something else; or ours was taken over.
    return True


def _write(
    plan: FrozenPlan,
    step: FrozenStep,
    books: StepBooks,
    owner: Owner,
    conclusion: Conclusion,
    say: Callable[[str], None],
) -> None:
    def overwrite(path: str, data: bytes, *, durable: bool = True) -> None:
        patiently(lambda: books.lease.overwrite(path, data, durable=durable), say=say)

    def commit(path: str, data: bytes, *, durable: bool = True) -> None:
        patiently(lambda: books.lease.commit(path, data, durable=durable), say=say)

    finished = time.time()
    facts = _facts_so_far(plan, step, books, owner, finished)
    facts["finished"] = timestamp(finished)
    if conclusion.outcome.error is not None:
        facts["error"] = conclusion.outcome.error
    if conclusion.cost is not None:
        facts |= conclusion.cost.to_fields()
    books.begin(facts)
    books.write_down(conclusion, overwrite)
    log = StepLog(books.log_path)
    try:
        log.write(attempt_line(facts["started"], facts["attempt"], str(facts["worker_id"])))
        log.write(f"{step.tasks} tasks, their logs are in {FOLDER}\n".encode())
        word = f"{conclusion.status}: {conclusion.outcome.error}" if conclusion.outcome.error else conclusion.status
        log.write(f"--- {facts['finished']} {word} after {facts['seconds']} s\n".encode())
        log.flush()
    finally:
        log.close()
    # What all records agree on may overwrite anything; a failure must not overwrite somebody's success.
    books.close(conclusion, overwrite if conclusion.status is Status.SUCCESS else commit)


def _facts_so_far(
    plan: FrozenPlan, step: FrozenStep, books: StepBooks, owner: Owner, finished: float
) -> dict[str, Any]:
    """What the driver recorded when it began the step, or else what can be said without that."""
    path = info_path(step.output_path)
    data = patiently(lambda: books.lease.read(path))
    facts: dict[str, Any] = {} if data is None else parse_info(data, path).get("run", {})
    facts = {**attempt_facts(plan.run, owner, 1, finished), **facts}
    facts.pop("error", None)  # From a worker that saw a task fail that has been done since.
    try:
        seconds = max(0.0, finished - parse_timestamp(facts["started"]))
    except (ValueError, TypeError):
        seconds = 0.0  # Somebody has edited the file.
    return {**facts, "seconds": round(seconds, 3)}
