"""An array step that machines and drivers work on together, in an order drawn from a seed; and everything goes wrong.

Machines run one worker after the other, each on a task; drivers begin the step and end it. They run the project's own
code (`TakeUp`, `TaskBooks`, `begin_array`, `end_if_all_done`, `end_array`) on a store that is a table here. Workers
die, seen or unseen, or sleep for lifetimes in the middle of a call; answers are lost, and requests arrive long after
their senders gave up. The judge sees each change that the store really made.
"""

from __future__ import annotations

import hashlib
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state import info, status, step_lease, task_records
from marin_rules.state.status import ARTIFACT_FILE, Status, parse_status, status_path
from marin_rules.state.task_records import Layout, TaskPlace, layout_path
from marin_rules.storage import bulk
from marin_rules.storage.explain import UnansweredError
from marin_rules.storage.leases import held
from marin_rules.storage.leases.beside_objects import LeaseBesideObjects
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import LIFETIME_SECONDS
from marin_rules.storage.leases.store import LeaseStore, Snapshot, Version
from marin_rules.storage.objects.store import ObjectStore, StoredObject
from marin_rules.worker import array_step, step_books, take_up
from marin_rules.worker.array_step import Begun, begin_array, end_array, end_if_all_done, round_is_over
from marin_rules.worker.conclusion import Conclusion
from marin_rules.worker.gpu_slots import GpuSlots
from marin_rules.worker.step_call import Outcome
from marin_rules.worker.take_up import HeldError, TakeUp
from marin_rules.worker.task_books import TaskBooks
from support.lease_models.clock import elsewhere
from support.lease_models.oracle import Ledger, Violation
from support.lease_models.programs import patiently
from support.lease_models.replay import Kind
from support.lease_models.turns import Turns
from support.small_plans import plan_of, step

TASKS = 12
_MACHINES, _DRIVERS = 5, 2
_LOSSES = 0.06
"""How many of the changes get no answer."""

_CALM_TURNS = 3000
"""After so many nothing goes wrong any more: from then on the step must come to its end."""

_LAST_TURNS = 30_000


class Died(BaseException):
    """The process is gone, in the middle of whatever it did."""


@dataclass
class Account:
    """The judge's account of the step and of its tasks, by true time."""

    kind: Kind
    folder: str
    leases: dict[str, Ledger] = field(default_factory=dict)
    """By the path of the lease; of a task also what was written under it."""

    done_by: int | None = None
    """Who wrote SUCCESS for the step."""

    def lease_written(self, path: str, who: int, now: float, *, is_dead: bool) -> None:
        ledger = self.leases.get(path, Ledger())
        self.leases[path] = ledger.lease_written(who, now, LIFETIME_SECONDS, is_dead=is_dead)

    def lease_removed(self, path: str, who: int) -> None:
        self.leases[path] = self.leases[path].lease_removed(who)

    def file_written(self, path: str, who: int, data: bytes, objects: dict[str, tuple[bytes, Any]]) -> None:
        if path == status_path(self.folder):
            self._status_written(who, parse_status(data, path), objects)
        elif path.startswith(f"{self.folder}/.executor_tasks/round-") and path.endswith(".json"):
            lease = path.removesuffix(".json") + ".lock"
            self.leases[lease] = self.leases.get(lease, Ledger()).status_written(
                who, data, is_fenced=self.kind.is_fenced
            )

    def _status_written(self, who: int, word: Status, objects: dict[str, tuple[bytes, Any]]) -> None:
        lease = self.leases.get(f"{status_path(self.folder)}.lock", Ledger())
        if who not in lease.succession or (self.kind.is_fenced and lease.holder != who):
            raise Violation(f"{who} wrote {word} without the lease of the step, which {lease.holder} has")
        if self.done_by is not None and (self.done_by != who or word is not Status.SUCCESS):
            raise Violation(f"{who} wrote {word} over the SUCCESS of {self.done_by} for the step")
        if word is Status.SUCCESS:
            missing = undone(objects, self.folder)
            if missing:
                raise Violation(f"{who} wrote SUCCESS, and the tasks {missing} are not done")
            self.done_by = who


def undone(objects: Mapping[str, tuple[bytes, Any]], folder: str) -> list[int]:
    """The tasks that are not done, in truth: by their records of the round that the layout names."""
    layout = Layout.parse(objects[layout_path(folder)][0], folder)
    records = (objects.get(TaskPlace(folder, layout.round, task).record_path) for task in range(TASKS))
    return [task for task, found in enumerate(records) if found is None or b'"SUCCESS"' not in found[0]]


@dataclass
class ArrayWorld:
    """One schedule."""

    kind: Kind
    seed: int
    tmp_path: Path
    counts: Counter[str] = field(default_factory=Counter)
    objects: dict[str, tuple[bytes, Any]] = field(default_factory=dict)
    seen_dead: set[int] = field(default_factory=set)
    writes: int = 0
    late: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    round: int = 0
    """Of the tasks that a driver has submitted jobs for."""

    def __post_init__(self) -> None:
        plan = plan_of(self.tmp_path, step("many", tasks=TASKS))
        folder = "memory/many" if self.kind.is_fenced else "model://bucket/many"
        plan.steps = [replace(plan.steps[0], output_path=folder)]
        self.plan: FrozenPlan = plan
        self.step: FrozenStep = plan.steps[0]
        self.account = Account(self.kind, folder)
        self.local = threading.local()
        self.turns = Turns(
            _MACHINES + _DRIVERS, self.seed, longest_tick=0.4, longest_nap=3 * LIFETIME_SECONDS, naps=0.05
        )

    def run(self) -> None:
        """Everything; a `Violation` when something is wrong."""
        machines = [Machine(self, number) for number in range(_MACHINES)]
        drivers = [Driver(self, _MACHINES + number) for number in range(_DRIVERS)]
        with pytest.MonkeyPatch.context() as patch:
            self._install(patch)
            self.turns.play([program.run for program in (*machines, *drivers)])
        self._judge_the_end()

    @property
    def is_calm(self) -> bool:
        return self.turns.turns > _CALM_TURNS

    @property
    def is_over(self) -> bool:
        if self.turns.turns > _LAST_TURNS:
            raise Violation("the step does not come to its end")
        return self.account.done_by is not None

    def _judge_the_end(self) -> None:
        word, _ = self.objects[status_path(self.step.output_path)]
        assert parse_status(word, "status") is Status.SUCCESS
        assert undone(self.objects, self.step.output_path) == [], "a task that was done stays done"
        artifact, _ = self.objects[f"{self.step.output_path}/{ARTIFACT_FILE}"]
        assert json.loads(artifact) == [{"task": task} for task in range(TASKS)]

    # --- the store

    def change(self, view: View, kind: str, perform: Callable[[], Any], refusal: Any) -> Any:
        """A change by a worker; what its answer is."""
        self.pause(view.machine)
        self._deliver_late()
        chance = self.turns.chance
        if self.is_calm or chance.random() >= _LOSSES:
            return perform()
        # Nobody gives up waiting for a file that it writes itself: no status on a disk is written late.
        loss = chance.choice(("lost", "refused") if kind == "commit" else ("lost", "late", "refused"))
        self.counts[f"{loss} {kind}"] += 1
        if loss == "late":
            self.late.append((self.turns.now + chance.uniform(0.0, 2 * LIFETIME_SECONDS), perform))
            raise UnansweredError(0, "no answer")
        perform()
        if loss == "refused" and not self.kind.is_fenced:
            return refusal
        raise UnansweredError(0, "no answer")

    def read(self, machine: int, path: str) -> tuple[bytes, Any] | None:
        self.pause(machine)
        self._deliver_late()
        return self.objects.get(path)

    def pause(self, machine: int, seconds: float = 0.0) -> None:
        self.turns.pause(machine, seconds)

    def version(self, path: str) -> Any:
        found = self.objects.get(path)
        return None if found is None else found[1]

    def put(self, who: int, path: str, data: bytes) -> Any:
        """The change itself, and what the judge makes of it."""
        if path.endswith(".lock"):
            ledger = self.account.leases.get(path, Ledger())
            is_taken_over = ledger.holder not in (None, who)
            self.counts["takeovers"] += is_taken_over
            self.account.lease_written(path, who, self.turns.now, is_dead=ledger.holder in self.seen_dead)
        else:
            self.account.file_written(path, who, data, self.objects)
        self.writes += 1
        version = hashlib.md5(data).hexdigest() if self.kind.repeats_versions else str(self.writes)
        self.objects[path] = (data, version)
        return version

    def remove(self, who: int, path: str) -> None:
        self.account.lease_removed(path, who)
        del self.objects[path]

    def _deliver_late(self) -> None:
        due = [perform for moment, perform in self.late if moment <= self.turns.now]
        self.late = [each for each in self.late if each[0] > self.turns.now]
        for perform in due:
            self.counts["late changes"] += bool(perform())

    def _remove_tree(self, path: str) -> None:
        """What no lease fences: whoever comes late to it removes what others have done since."""
        self.pause(self.local.view.machine)
        for name in [name for name in self.objects if name.startswith(f"{path}/")]:
            del self.objects[name]
            self.counts["removed"] += 1

    # --- the project's code on this store

    def _install(self, patch: pytest.MonkeyPatch) -> None:
        def read_bytes(path: str) -> bytes | None:
            found = self.read(self.local.view.machine, path)
            return None if found is None else found[0]

        def read_many(paths: Iterable[str]) -> dict[str, bytes | None]:
            return {path: read_bytes(path) for path in paths}

        def open_lease_at(path: str, owner: Owner) -> Lease:
            view: View = self.local.view
            store = view.fenced(path) if self.kind.is_fenced else LeaseBesideObjects(view.objects(), path)
            return Lease(cast(LeaseStore, store), owner, view)

        def is_in_patience(action: Callable[[], Any], **_: Any) -> Any:
            return patiently(action)

        for module in (info, status, step_lease, task_records, step_books):
            patch.setattr(module, "read_bytes", read_bytes)
        patch.setattr(bulk, "read_many", read_many)
        patch.setattr(task_records, "make_directory", lambda path: None)
        patch.setattr(task_records, "remove_tree", self._remove_tree)
        for module in (step_lease, task_records):
            patch.setattr(module, "open_lease_at", open_lease_at)
        for module in (array_step, take_up):
            patch.setattr(module, "patiently", is_in_patience)
        patch.setattr(array_step, "StepLog", _NoLog)
        patch.setattr(held, "Heartbeat", _NoHeartbeat)
        clock = SimpleNamespace(
            time=lambda: self.local.view.time(),
            monotonic=lambda: self.turns.now,
            sleep=lambda seconds: self.pause(self.local.view.machine, seconds),
        )
        patch.setattr(array_step, "time", clock)
        patch.setitem(cast(dict[str, Any], end_array.__kwdefaults__), "sleep", clock.sleep)
        patch.setattr(status, "_versions_repeat", lambda path: self.kind.repeats_versions)
        patch.setattr(Owner, "current", lambda: self.local.view.owner)
        patch.setattr(Owner, "is_dead_here", lambda owner: owner.pid in self.seen_dead)


class _NoHeartbeat:
    """Whoever begins or ends the step is never quick enough to refresh its lease meanwhile."""

    def __init__(self, lease: Lease, **_: Any) -> None:
        """Nothing is refreshed."""

    def start(self) -> None:
        """No thread: time passes only in turns."""

    def stop(self) -> None:
        """Nothing was started."""

    def check(self) -> None:
        """Nobody asks."""


class _NoLog:
    """A log that nobody reads."""

    def __init__(self, path: str) -> None:
        """Nothing is kept."""

    def write(self, data: bytes) -> None:
        """Gone."""

    def flush(self) -> None:
        """Nothing to be seen."""

    def close(self) -> None:
        """Nothing to give back."""


class View:
    """What one process sees of the store and of the time. As a clock, and as an object store."""

    repeats_versions = False

    def __init__(self, world: ArrayWorld, machine: int) -> None:
        world.counts["processes"] += 1
        self.number = world.counts["processes"]
        self.machine = machine
        self.owner = replace(elsewhere(f"machine{machine}"), worker_id=f"worker{self.number}", pid=self.number)
        self._world = world

    def objects(self) -> ObjectStore:
        return cast(ObjectStore, self)

    def fenced(self, path: str) -> FencedView:
        return FencedView(self, path)

    def monotonic(self) -> float:
        return self._world.turns.now

    def since_boot(self) -> float:
        return self._world.turns.now

    def time(self) -> float:
        return 1_700_000_000.0 + self._world.turns.now

    def read(self, url: str) -> StoredObject | None:
        found = self._world.read(self.machine, url)
        return None if found is None else StoredObject(*found)

    def write(self, url: str, data: bytes, expected: str | None) -> str | None:
        def perform() -> str | None:
            if self._world.version(url) != expected:
                return None
            version: str = self._world.put(self.number, url, data)
            return version

        written: str | None = self._world.change(self, "write", perform, None)
        return written

    def delete(self, url: str, expected: Any) -> bool:
        def perform() -> bool:
            if self._world.version(url) != expected:
                return False
            self._world.remove(self.number, url)
            return True

        return bool(self._world.change(self, "delete", perform, False))

    def commit(self, lease: str, version: Any, path: str, data: bytes) -> bool:
        """Compare the lease and write, in one go."""

        def perform() -> bool:
            if self._world.version(lease) != version:
                return False
            self._world.put(self.number, path, data)
            return True

        return bool(self._world.change(self, "commit", perform, False))


@dataclass(frozen=True)
class FencedView:
    """A lease store as local files are one."""

    view: View
    path: str

    def read(self) -> Snapshot | None:
        found = self.view.read(self.path)
        return None if found is None else Snapshot(found.data, found.version)

    def create(self, data: bytes) -> Version | None:
        return self.view.write(self.path, data, None)

    def replace(self, data: bytes, version: Version) -> Version | None:
        return self.view.write(self.path, data, cast(str, version))

    def delete(self, version: Version) -> bool:
        return self.view.delete(self.path, version)

    def read_beside(self, path: str) -> bytes | None:
        found = self.view.read(path)
        return None if found is None else found.data

    def commit(self, version: Version, path: str, data: bytes, *, durable: bool = True) -> bool:
        return self.view.commit(self.path, version, path, data)


class _Program:
    def __init__(self, world: ArrayWorld, number: int) -> None:
        self.world, self.number = world, number
        self.chance = random.Random(f"{world.seed}-{number}")

    def run(self) -> None:
        """One process after the other, until the step is done."""
        while not self.world.is_over:
            self.world.local.view = view = View(self.world, self.number)
            try:
                outcome = self.live(view)
            except (UnansweredError, Died, LeaseLostError, HeldError) as error:
                outcome = type(error).__name__
            except MarinRulesError as error:
                if "failed in the other run" not in str(error):
                    raise
                outcome = "refused"
            self.world.counts[outcome] += 1
            self.world.pause(self.number, self.chance.uniform(0.0, 5.0))

    def live(self, view: View) -> str:
        raise NotImplementedError

    def may_die(self, view: View) -> None:
        if self.world.is_calm or self.chance.random() > 0.15:
            return
        if self.chance.random() < 0.5:
            self.world.seen_dead.add(view.number)
        raise Died


class Machine(_Program):
    """Does one task after the other, as jobs of a cluster do."""

    def live(self, view: View) -> str:
        world, step = self.world, self.world.step
        number = world.round
        if round_is_over(step, number):
            return "too early"
        task = self.chance.choice(undone(world.objects, step.output_path)[:3] or range(TASKS))
        place = TaskPlace(step.output_path, number, task)
        books = TaskBooks(world.plan, step, place, view.owner, label="task", patiently=patiently)
        taking = TakeUp(
            books,
            GpuSlots(0, "task"),
            say=lambda text: None,
            sleep=lambda seconds: world.pause(self.number, 20 * seconds),
            waits=self.chance.random() < 0.5,
        )
        if taking.acquire() and not self._work(books, task, view):
            taking.release()
            return "task failed"
        self.may_die(view)
        taking.release()
        self.may_die(view)
        is_ended = end_if_all_done(world.plan, step, number, after=task, say=lambda text: None)
        return "ended the step" if is_ended else "task done"

    def _work(self, books: TaskBooks, task: int, view: View) -> bool:
        """From RUNNING to the record; whether the task is done."""
        lease = books.lease
        books.begin({"id": "run", "worker_id": view.owner.worker_id})
        for _ in range(self.chance.randrange(3)):
            self.world.pause(self.number, LIFETIME_SECONDS / 3)
            patiently(lease.refresh)
        self.may_die(view)
        words = (Status.SUCCESS, Status.FAILED, Status.CANCELLED)
        word = self.chance.choices(words, (1, 0, 0) if self.world.is_calm else (70, 20, 10))[0]
        artifact = json.dumps({"task": task}) if word is Status.SUCCESS else None

        def overwrite(path: str, data: bytes, *, durable: bool = True) -> None:
            patiently(lambda: lease.overwrite(path, data, durable=durable))

        books.close(Conclusion(word, Outcome(artifact=artifact)), overwrite)
        return word is Status.SUCCESS


class Driver(_Program):
    """Begins the step, looks at its tasks, and ends it: as done, or as failed, or not at all."""

    def live(self, view: View) -> str:
        world, step = self.world, self.world.step
        begun = begin_array(world.plan, step)
        if not isinstance(begun, Begun):
            return "not begun"
        self.may_die(view)
        world.round = begun.round
        for _ in range(self.chance.randrange(1, 6)):
            world.pause(self.number, self.chance.uniform(0.0, LIFETIME_SECONDS))
            records = task_records.read_records(step.output_path, begun.round, range(TASKS))
            self.may_die(view)
            if len(records) == TASKS and all(record.is_done for record in records.values()):
                is_ended = self._end(begun.round, array_step.done(records))
                return "ended by a driver" if is_ended else "left to others"
        if self.chance.random() < 0.8:
            self._end(begun.round, Conclusion(Status.FAILED, Outcome(error="some tasks failed")))
            return "ended as failed"
        return "went away"

    def _end(self, number: int, conclusion: Conclusion) -> bool:
        def sleep(seconds: float) -> None:
            self.world.pause(self.number, 20 * seconds)

        waits = self.chance.random() < 0.5
        return end_array(
            self.world.plan, self.world.step, number, conclusion, say=lambda text: None, waits=waits, sleep=sleep
        )
