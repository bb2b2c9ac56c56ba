"""What `marin_rules.active` looks at, made by hand in one process: runs, workers, processes, and clusters of fakes.

Runs are real files in a state folder of the test, leases and statuses real files below its prefix. Time passes only
while somebody sleeps, and what is to happen meanwhile is said before.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from marin_rules import ExecutorStep
from marin_rules.active.queues import Queues
from marin_rules.active.stopping import Stopper
from marin_rules.active.survey import Survey, look
from marin_rules.clusters.protocol import JobTag
from marin_rules.plan import make_plan
from marin_rules.plans.freezing import freeze
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.plan_file import write_plan
from marin_rules.plans.run import new_run
from marin_rules.state.run_registry import RegisteredRun, find_run, register
from marin_rules.state.status import Status, status_path
from marin_rules.state.step_lease import lease_path
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.local import LocalLeaseStore
from marin_rules.storage.leases.owner import Owner
from support.fake_queue import FakeQueue
from support.lease_models.clock import ManualClock, elsewhere

LIFETIME = 90.0


@dataclass
class SleepingClock(ManualClock):
    """Time passes when somebody sleeps, and things happen in it."""

    _to_come: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Let something happen once so much time has passed."""
        self._to_come.append((self.elapsed + seconds, action))

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        due = [action for moment, action in self._to_come if moment <= self.elapsed]
        self._to_come = [(moment, action) for moment, action in self._to_come if moment > self.elapsed]
        for action in due:
            action()


@dataclass
class FakeProcess:
    """A process that does with a signal what the test says."""

    pid: int
    on_signal: Callable[[signal.Signals], object] = lambda number: None
    clock: SleepingClock | None = None
    interruption: signal.Signals = signal.SIGINT
    ended: bool = False
    received: list[signal.Signals] = field(default_factory=list)
    is_closed: bool = False

    def send(self, number: signal.Signals) -> None:
        self.received.append(number)
        self.on_signal(number)

    def has_ended(self, within: float = 0.0) -> bool:
        if not self.ended and self.clock is not None:
            self.clock.sleep(within)
        return self.ended

    def company(self) -> list[int]:
        return []

    def close(self) -> None:
        self.is_closed = True


def nothing(config: Any) -> None:
    """The function of all steps here."""


class ActiveWorld:
    """A prefix, a state folder, two clusters, a clock."""

    def __init__(self, folder: Path) -> None:
        """The state folder is where `XDG_STATE_HOME` is: the test sees to that."""
        self.folder = folder
        self.clock = SleepingClock()
        self.cloud, self.grid = FakeQueue("cloud"), FakeQueue("grid")
        self.queues = Queues([self.cloud, self.grid])
        self.processes: dict[int, FakeProcess] = {}
        self.said: list[str] = []

    def look(self) -> Survey:
        return look(self.queues, self.clock.time())

    def stopper(self) -> Stopper:
        return Stopper(
            self.queues,
            self.said.append,
            clock=self.clock,
            find_process=lambda owner: self.processes.get(owner.pid),
            open_lease=lambda path: self.lease(path, Owner.current()),
        )

    def run(self, *names: str, prefix: str = "out", driver: Owner | None = None) -> FrozenPlan:
        """A registered run that wants steps of these names, driven by this process if nobody else is named."""
        root = str(self.folder / prefix)
        run = replace(new_run(prefix=root, caller_path=str(self.folder / "x.py")), python_path=(), git_commit=None)
        plan = freeze(make_plan([ExecutorStep(name, nothing, {}) for name in names], prefix=root), run)
        write_plan(plan, run.plan_path)
        register(plan)
        if driver is not None:
            self.edit_registration(run.id, driver=driver.to_fields())
        else:
            os.utime(self.registration(run.id), (self.clock.wall, self.clock.wall))
        return plan

    def registration(self, run_id: str) -> Path:
        return Path(os.environ["XDG_STATE_HOME"]) / "marin-rules" / "runs" / f"{run_id}.json"

    def edit_registration(self, run_id: str, **fields: Any) -> None:
        file = self.registration(run_id)
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
        os.utime(file, (self.clock.wall, self.clock.wall))

    def registered(self, run_id: str) -> RegisteredRun | None:
        return find_run(run_id)

    def lease(self, output_path: str, owner: Owner) -> Lease:
        return Lease(LocalLeaseStore(lease_path(output_path)), owner, self.clock, lifetime=LIFETIME)

    def work(
        self, step: FrozenStep, owner: Owner | None = None, run: str = "", info: Mapping[str, Any] | None = None
    ) -> Lease:
        """Let a worker have a step: its lease, RUNNING, and what it writes down of itself."""
        lease = self.lease(step.output_path, owner or elsewhere("node7"))
        assert lease.try_acquire() is None
        lease.commit(status_path(step.output_path), Status.RUNNING.encode())
        assert lease.record is not None
        block = {"id": run, "attempt": 2, "worker_id": lease.record.worker_id, **(info or {})}
        write_info(step.output_path, name=step.name, run=block)
        return lease

    def finish(self, lease: Lease, step: FrozenStep, status: Status) -> None:
        """What a worker does at its end."""
        lease.overwrite(status_path(step.output_path), status.encode())
        lease.release()

    def status(self, step: FrozenStep) -> str | None:
        path = Path(status_path(step.output_path))
        return path.read_text() if path.exists() else None

    def is_held(self, step: FrozenStep) -> bool:
        return os.path.exists(lease_path(step.output_path))


def write_info(output_path: str, **fields: Any) -> None:
    os.makedirs(output_path, exist_ok=True)
    (Path(output_path) / ".executor_info").write_text(json.dumps(fields))


def tag_of(plan: FrozenPlan, step: FrozenStep) -> JobTag:
    return JobTag.of(plan.run.id, step.key, step.output_path)


def dead_here() -> Owner:
    """A process of this machine that has certainly ended."""
    owner = Owner.current()
    assert owner.start_ticks is not None
    return replace(owner, start_ticks=owner.start_ticks + 1)
