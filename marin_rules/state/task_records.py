"""The tasks of an array step: the records of each, below the step's output path.

    .executor_tasks/layout.json      {"tasks": 64, "round": 1}
    .executor_tasks/round-1/17.json  the record of task 17
    .executor_tasks/round-1/17.lock  its lease, while somebody works on it
    .executor_tasks/round-1/17.log   what it printed

A record is one JSON object with a status, like an event of a status file. It is written under the task's lease as the
status of a step is under the step's: RUNNING first, by compare-and-swap, so that an attempt whose lease was taken over
cannot leave a record any more. A task is done when its record says SUCCESS, and stays done.

The layout says how many tasks the step is divided into, and which round the records belong to: a step that is done
again from the start begins a new one. It is written under the step's own lease (see `begin_round`). Records of one
number of tasks mean nothing to a run with another: a step begun that way is refused, never mixed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marin_rules.errors import MarinRulesError
from marin_rules.state.status import CorruptStatusError, Status, parse_status
from marin_rules.state.step_lease import peek_at
from marin_rules.storage.files import make_directory, read_bytes, remove_tree
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.open import open_lease_at
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import CorruptLeaseError, LeaseRecord, describe
from marin_rules.tasks import check_tasks
from marin_rules.urls import is_url

FOLDER = ".executor_tasks"

_LAYOUT = "layout.json"


class TasksChangedError(MarinRulesError):
    """The step was begun with another number of tasks, and some of them are done or running."""


class TaskHeldError(MarinRulesError):
    """Somebody works on a task of a round that is to be left behind: look again later."""

    def __init__(self, task: int, holder: LeaseRecord) -> None:
        super().__init__(f"task {task} held by {describe(holder, time.time())}")
        self.holder = holder


@dataclass(frozen=True)
class Layout:
    """How many tasks a step is divided into, and which round this is."""

    tasks: int
    round: int

    def to_bytes(self) -> bytes:
        return json.dumps({"tasks": self.tasks, "round": self.round}).encode()

    @classmethod
    def parse(cls, data: bytes, path: str) -> Layout:
        try:
            fields = json.loads(data)
            numbers = fields["tasks"], fields["round"]
            if not all(type(number) is int and number > 0 for number in numbers):
                raise ValueError(f"not two positive numbers: {numbers}")
            check_tasks(fields["tasks"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            folder = os.path.dirname(os.path.dirname(path))
            raise MarinRulesError(
                f"{path} does not say into how many tasks its step is divided ({error}). Delete the step's folder"
                f" {folder} to do the step again from the start."
            ) from error
        return cls(*numbers)


@dataclass(frozen=True)
class TaskRecord:
    """The record of one task."""

    status: Status
    fields: Mapping[str, Any]
    """All of it: the worker, its cluster job, times, the error, the returned value (`artifact`)."""

    @property
    def is_done(self) -> bool:
        return self.status is Status.SUCCESS

    @property
    def error(self) -> str:
        return str(self.fields.get("error") or "")

    @property
    def attempt(self) -> int:
        number = self.fields.get("attempt")
        return number if isinstance(number, int) else 0

    def to_bytes(self) -> bytes:
        # A token, for stores whose versions are hashes of the content: two workers' RUNNING must differ.
        return json.dumps({"status": self.status, "token": secrets.token_hex(8), **self.fields}).encode() + b"\n"

    @classmethod
    def parse(cls, data: bytes, path: str) -> TaskRecord:
        status = parse_status(data, path)
        last = data.decode().rstrip().rpartition("\n")[2]  # As with a status, which may be a log of events.
        fields = json.loads(last) if last.startswith("{") else {}
        return cls(status, {name: value for name, value in fields.items() if name not in ("status", "token")})


@dataclass(frozen=True)
class TaskPlace:
    """Where the record of one task of a step is."""

    output_path: str
    round: int
    task: int

    @property
    def folder(self) -> str:
        return round_folder(self.output_path, self.round)

    @property
    def record_path(self) -> str:
        return os.path.join(self.folder, f"{self.task}.json")

    @property
    def lease_path(self) -> str:
        return os.path.join(self.folder, f"{self.task}.lock")

    @property
    def log_path(self) -> str:
        return os.path.join(self.folder, f"{self.task}.log")

    def open_lease(self, owner: Owner) -> Lease:
        """The lease of the task, not yet acquired."""
        return open_lease_at(self.lease_path, owner)

    def read(self) -> TaskRecord | None:
        """The record; None if there is none yet, or only a damaged one: the task is to be run."""
        data = read_bytes(self.record_path)
        with contextlib.suppress(CorruptStatusError):
            return None if data is None else TaskRecord.parse(data, self.record_path)
        return None

    def holder(self) -> LeaseRecord | None:
        """Who works on the task, as far as can be seen without taking its lease."""
        with contextlib.suppress(CorruptLeaseError):
            record = peek_at(self.lease_path)
            if record is not None and not (record.owner and record.owner.is_dead_here()):
                return record
        return None


def round_folder(output_path: str, number: int) -> str:
    return os.path.join(output_path, FOLDER, f"round-{number}")


def layout_path(output_path: str) -> str:
    return os.path.join(output_path, FOLDER, _LAYOUT)


def read_layout(output_path: str) -> Layout | None:
    """How the step is divided, None for one that was never begun with tasks."""
    path = layout_path(output_path)
    data = read_bytes(path)
    return None if data is None else Layout.parse(data, path)


def read_records(output_path: str, number: int, tasks: Iterable[int]) -> dict[int, TaskRecord]:
    """Records of a round, those that are there. A damaged one is not: its task runs again.

    For drivers, and for workers that no longer fork: objects are read many at a time, by threads.
    """
    paths = {task: TaskPlace(output_path, number, task).record_path for task in tasks}
    if is_url(output_path):
        from marin_rules.storage.bulk import read_many  # Local runs need not wait for its import.

        contents = read_many(paths.values())
    else:
        contents = {path: read_bytes(path) for path in paths.values()}
    records = {}
    for task, path in paths.items():
        data = contents[path]
        with contextlib.suppress(CorruptStatusError):
            if data is not None:
                records[task] = TaskRecord.parse(data, path)
    return records


def check_layout(step: str, output_path: str, tasks: int | None, layout: Layout | None) -> None:
    """Refuse to continue a step that was begun with another number of tasks, if any of them is done or running.

    `tasks` is what this run wants, None for an undivided step; `layout` is what exists.
    """
    if layout is None or layout.tasks == tasks:
        return
    begun = f"step {step} was begun with tasks={layout.tasks}"
    now = "is not divided into tasks in this run" if tasks is None else f"has tasks={tasks} in this run"
    records = read_records(output_path, layout.round, range(layout.tasks))
    done = [task for task, record in records.items() if record.is_done]
    if done:
        raise TasksChangedError(
            f"{begun}, of which {len(done)} {'is' if len(done) == 1 else 'are'} done, and {now}: their results would"
            f" be mixed. Set tasks={layout.tasks} to continue, or delete {output_path} to start over (see"
            " `marin-rules delete`)."
        )
    for task, record in records.items():
        holder = TaskPlace(output_path, layout.round, task).holder() if record.status is Status.RUNNING else None
        if holder is not None:
            raise TasksChangedError(
                f"{begun}, of which task {task} is still run by {describe(holder, time.time())}, and {now}. Stop it"
                f" first (`marin-rules jobs stop {output_path}`), or set tasks={layout.tasks}."
            )


class RoundsLeft:
    """The leases on tasks of rounds that one worker wants to leave behind: nobody must work on these any more.

    It keeps watching the same leases, because it takes a lease's lifetime to see that its holder is gone.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._leases: dict[TaskPlace, Lease] = {}

    def take(self, output_path: str, number: int, records: Mapping[int, TaskRecord]) -> None:
        """Take the leases of all running tasks; `TaskHeldError` if somebody has one."""
        for task, record in records.items():
            if record.status is Status.RUNNING:
                place = TaskPlace(output_path, number, task)
                lease = self._leases.setdefault(place, place.open_lease(self._owner))
                holder = lease.try_acquire()
                if holder is not None:
                    self._give_back()
                    raise TaskHeldError(task, holder)

    def _give_back(self) -> None:
        for lease in self._leases.values():
            with contextlib.suppress(OSError):  # Then it expires.
                lease.release()


def begin_round(lease: Lease, step: str, output_path: str, tasks: int | None, *, anew: bool, left: RoundsLeft) -> int:
    """Decide which round of tasks to do, while holding the step's lease; returns its number.

    Continues the existing round, or begins the next one: if the step is to be done `anew`, or was begun with
    another number of tasks and none of them is done. An undivided step (`tasks` is None) that is done again leaves an
    empty round behind, so that no later run with tasks mistakes the old ones for its own.
    """
    path = layout_path(output_path)
    data = lease.read(path)
    found = None if data is None else Layout.parse(data, path)
    if found is None:
        if tasks is None:
            return 0
        layout = Layout(tasks, 1)
        # Somebody removed the layout, perhaps a task that cleared its output folder away while others were running:
        # records without one are of an unknown number of tasks. Nothing fences their removal: a worker that was paused
        # right here for longer than its lease lives would remove what others have done since.
        lease.verify()
        remove_tree(round_folder(output_path, layout.round))
    else:
        if anew:
            records = read_records(output_path, found.round, range(found.tasks))
            left.take(output_path, found.round, records)
            goes_on = not records  # It was never begun: it is as good as the next one.
        else:
            check_layout(step, output_path, tasks, found)
            goes_on = True
        if goes_on and tasks in (found.tasks, None):
            return found.round
        layout = Layout(tasks or found.tasks, found.round + 1)
    make_directory(os.path.dirname(path))
    lease.commit(path, layout.to_bytes())
    if found is not None:
        with contextlib.suppress(OSError):  # Nobody reads it any more.
            remove_tree(round_folder(output_path, found.round))
    return layout.round


@dataclass(frozen=True)
class TaskCounts:
    """How far an array step is."""

    tasks: int
    done: int = 0
    running: int = 0
    failed: int = 0

    def __str__(self) -> str:
        """For people: `41/64, 20 running, 3 failed`."""
        words = [f"{self.done}/{self.tasks}"]
        words += [f"{self.running} running"] if self.running else []
        words += [f"{self.failed} failed"] if self.failed else []
        return ", ".join(words)


def count_tasks(tasks: int, records: Iterable[TaskRecord]) -> TaskCounts:
    """The summary of a round's records. A task whose worker was killed counts as running until it is taken up."""
    found = Counter(record.status for record in records)
    return TaskCounts(tasks, found[Status.SUCCESS], found[Status.RUNNING], found[Status.FAILED])


def stored_counts(output_path: str) -> TaskCounts | None:
    """How far an array step is, by what is stored about it; None for a step that was not begun with tasks."""
    layout = read_layout(output_path)
    if layout is None:
        return None
    return count_tasks(layout.tasks, read_records(output_path, layout.round, range(layout.tasks)).values())


HOPELESS_FAILURES = 10
"""After this many failures before the first success, the other tasks are not tried: they would fail in the same way."""


def is_hopeless(done: int, failed: int) -> bool:
    """Whether the remaining tasks are not worth trying."""
    return done == 0 and failed >= HOPELESS_FAILURES


def failures_in_words(tasks: int, errors: Mapping[int, str], left: int = 0) -> str:
    """The message about an array step that failed: how many tasks, and the first of them with its error."""
    first = min(errors)
    others = [str(task) for task in sorted(errors)[1:11]]
    more = "" if len(errors) <= 11 else f" and {len(errors) - 11} more"
    text = f"{len(errors)} of {tasks} tasks failed: task {first}: {errors[first]}"
    text += f"; also {'task' if len(others) == 1 else 'tasks'} {', '.join(others)}{more}" if others else ""
    return text + (f"; {left} more were not tried, because everything before them failed" if left else "")


def joined_artifacts(artifacts: Sequence[Any]) -> str:
    """What an array step returns, as JSON: the list of what its tasks returned; `null` if none returned anything."""
    return json.dumps(list(artifacts), indent=2) if any(value is not None for value in artifacts) else "null"
