"""The heartbeat of a lease: refreshed from a thread of its own, which does nothing else, since a store may be slow.

Errors are retried while the lease is certainly still ours, and count as a loss after that: no process may rely on a
lease that others may already have taken over. The step must then be stopped; `wake` notifies its supervisor.

A process that was paused (SIGSTOP, a suspended job or machine) for so long that others may have taken its
lease does not know whether somebody did. It is in doubt until the next refresh is answered: nothing may be done
meanwhile, and if nobody took the lease, work continues. If the store does not answer, doubt ends in a loss.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from marin_rules.errors import MarinRulesError
from marin_rules.storage.leases.clock import since_boot
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.record import LIFETIME_SECONDS

_BEATS_IN_A_LIFETIME = 3
_LONGEST_INTERVAL_SECONDS = LIFETIME_SECONDS / _BEATS_IN_A_LIFETIME
"""However long the lifetime: Marin's workers do not know it, and take over a lease whose last heartbeat is 90 s old."""

_TRIES_IN_A_BEAT = 6


class Heartbeat:
    """Keeps one lease alive between `start` and `stop`."""

    def __init__(self, lease: Lease, *, wake: Callable[[], None], say: Callable[[str], None]) -> None:
        self._lease = lease
        self._wake = wake
        self._say = say
        self._interval = min(lease.lifetime / _BEATS_IN_A_LIFETIME, _LONGEST_INTERVAL_SECONDS)
        self._glance = self._interval / _TRIES_IN_A_BEAT
        """No wait is longer: waits do not count the time for which the machine is suspended, the clock does."""

        self._loss: MarinRulesError | None = None
        self._looked_at = since_boot()
        self._in_doubt_since: float | None = None
        self._answered = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No refresh is begun after this; waits for one that was."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def silence(self) -> float:
        """How many lifetimes ago the lease was last refreshed."""
        return (since_boot() - self._lease.refreshed_at) / self._lease.lifetime

    @property
    def look_again(self) -> float:
        """The seconds within which the step's supervisor has to call `in_doubt` again."""
        left = self._deadline - since_boot()
        return min(left, self._glance) if left > 0 else self._glance

    def check(self) -> None:
        """Raise if the lease is lost, or was not refreshed for so long that it may be. Waits while it is in doubt."""
        while self.in_doubt():
            self._answered.wait(self._glance)

    def in_doubt(self) -> bool:
        """Whether others may have the lease, since this process was paused; raises if the lease is lost."""
        now = since_boot()
        was_paused = now - self._looked_at >= self._interval / 2
        self._looked_at = now
        if self._loss is not None:
            raise self._loss
        if now < self._deadline:
            self._in_doubt_since = None
            return False
        if self._in_doubt_since is None and was_paused:
            self._in_doubt_since = now
            self._answered.clear()
        begun = self._in_doubt_since
        if begun is None or now - begun >= self._lease.lifetime - self._interval:
            silent = now - self._lease.refreshed_at
            raise LeaseLostError(
                f"the lease could not be refreshed for {silent:.0f} s, so that others may take it. This worker has to"
                " stop, and its result is discarded; run the step again if nobody else does.",
                None,
            )
        return True

    @property
    def _deadline(self) -> float:
        """When (`since_boot`) the lease must be treated as lost: while there is still time to stop the step."""
        return self._lease.refreshed_at + self._lease.lifetime - self._interval

    def _run(self) -> None:
        due = self._lease.refreshed_at + self._interval
        paused = 0.0
        while (late := self._wait_until(due)) is not None:
            paused += late
            try:
                self._lease.refresh()
            except LeaseLostError as loss:
                self._loss = loss
                self._answered.set()
                self._wake()
                return
            except OSError as error:
                self._say(f"could not refresh its lease, will try again: {error}")
                due = since_boot() + self._glance
                continue
            due = since_boot() + self._interval
            if paused >= self._interval:
                self._say(f"was paused for {paused:.0f} s; nobody took its lease meanwhile, and it continues")
                self._answered.set()
                self._wake()
            paused = 0.0

    def _wait_until(self, due: float) -> float | None:
        """Wait; returns for how long this process was paused meanwhile, and `None` when the heartbeat is to stop."""
        late = 0.0
        while True:
            before = since_boot()
            wait = min(max(0.0, due - before), self._glance)
            if self._stopped.wait(wait):
                return None
            now = since_boot()
            late += max(0.0, now - before - wait)
            if now >= due:
                return late
