"""The heartbeat of a lease: refreshed from a thread of its own, since a store may take its time to answer.

Errors are retried while the lease is surely still ours, and are a loss after that: nobody may believe in a lease that
others may already have taken over. The step must then be stopped; `wake` tells whoever watches over it.

`at_first` and `at_each_beat` are called in the thread, for small tasks that may also have to wait for the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from marin_rules.errors import MarinRulesError
from marin_rules.storage.leases.lease import Lease, LeaseLostError

_BEATS_IN_A_LIFETIME = 3
_TRIES_IN_A_BEAT = 6


class Heartbeat:
    """Keeps one lease alive between `start` and `stop`."""

    def __init__(
        self,
        lease: Lease,
        *,
        wake: Callable[[], None],
        say: Callable[[str], None],
        at_first: Callable[[], None] = lambda: None,
        at_each_beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._lease = lease
        self._wake = wake
        self._say = say
        self._at_first = at_first
        self._at_each_beat = at_each_beat
        self._interval = lease.lifetime / _BEATS_IN_A_LIFETIME
        self._loss: MarinRulesError | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No refresh is begun after this; waits for one that is under way."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def deadline(self) -> float:
        """When (by the monotonic clock) the lease must count as lost: while there is time to stop the step."""
        return self._lease.refreshed_at + self._lease.lifetime - self._interval

    def check(self) -> None:
        """Raise if the lease is lost, or was not refreshed for so long that it may be."""
        if self._loss is not None:
            raise self._loss
        now = time.monotonic()
        if now >= self.deadline:
            silent = now - self._lease.refreshed_at
            raise LeaseLostError(
                f"the lease could not be refreshed for {silent:.0f} s, so that others may take it. This worker has to"
                " stop, and its result does not count; run the step again if nobody else does.",
                None,
            )

    def _run(self) -> None:
        self._at_first()
        pause = max(0.0, self._lease.refreshed_at + self._interval - time.monotonic())
        while not self._stopped.wait(pause):
            try:
                self._lease.refresh()
                pause = self._interval
            except LeaseLostError as loss:
                self._loss = loss
                self._wake()
                return
            except OSError as error:
                self._say(f"could not refresh its lease, will try again: {error}")
                pause = self._interval / _TRIES_IN_A_BEAT
                continue
            self._at_each_beat()
