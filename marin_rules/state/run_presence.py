"""A driver's sign of life: the file of its run is touched once a minute, for those who cannot see its process.

This lets another machine, or the same one after a restart, tell a dead driver from a live one.
"""

from __future__ import annotations

import threading

from marin_rules.plans.frozen import FrozenPlan
from marin_rules.state.run_registry import forget, register, touch

BEAT_SECONDS = 60.0
_END_SECONDS = 10.0
"""How long a file system may delay the end of a run for the sake of this file."""


class RunPresence:
    """A run is registered from `begin` to `end`, or longer if it will be continued."""

    def __init__(self, plan: FrozenPlan) -> None:
        self._plan = plan
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="run presence", daemon=True)

    def begin(self) -> None:
        register(self._plan)
        self._thread.start()

    def end(self, *, forgets: bool = True) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS)  # Otherwise it might write the file once more.
        if forgets:
            forget(self._plan.run)

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            if not touch(self._plan.run) and not self._ended.is_set():
                register(self._plan)  # It was taken for dead, perhaps since its machine was suspended.
