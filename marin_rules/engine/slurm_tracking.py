"""What the Slurm executor remembers: how it stands with each step, and which jobs are its own."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from marin_rules.execution.frozen import FrozenStep
from marin_rules.storage.leases.lease import Lease


@dataclass
class Track:
    """What is known of a step's jobs in this run."""

    step: FrozenStep
    interruptions: int = 0
    restarts: int = 0
    """How often Slurm itself has started its present job again."""

    state: str = ""
    nodes: str = ""
    lease: Lease | None = None
    """Watches a step that is under way elsewhere; None once it has a job of ours."""

    ended_at: float | None = None


@dataclass
class OwnJobs:
    """The jobs that this run has submitted or taken over, while they live: they are cancelled with it."""

    _ids: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    closed: threading.Event = field(default_factory=threading.Event)
    """The run was cancelled: nothing more is submitted."""

    def add(self, number: str) -> bool:
        """False if the run was cancelled meanwhile."""
        with self._lock:
            self._ids.add(number)
            return not self.closed.is_set()

    def has(self, number: str) -> bool:
        with self._lock:
            return number in self._ids

    def discard(self, number: str | None) -> None:
        with self._lock:
            self._ids.discard(number or "")

    def close(self) -> set[str]:
        """No more from now on; returns all that there are."""
        with self._lock:
            self.closed.set()
            return set(self._ids)
