"""Taking up a step or a task: wait for its lease and its GPUs, see what there is to do, write RUNNING.

A worker that waited for another run's attempt accepts its outcome; one that found the work free does it.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable

from marin_rules.errors import MarinRulesError
from marin_rules.state.step_lease import peek_at
from marin_rules.state.task_records import TaskHeldError
from marin_rules.storage.explain import StorageError
from marin_rules.storage.leases.record import CorruptLeaseError, LeaseRecord, describe
from marin_rules.storage.leases.store import ChangedError
from marin_rules.storage.patience import patiently
from marin_rules.worker.books import Books
from marin_rules.worker.gpu_slots import GpuSlots

_WAIT_SECONDS = (0.05, 2.0)
"""First and longest pause between two looks at a lease that somebody else holds."""

_RELEASE_SECONDS = 10.0
"""How long to wait for a store to release a lease that nobody needs any more."""

_REFUSALS = 8
"""How often in a row the status may turn out to be changed by others while we hold the lease. Once is a predecessor's
last write; this often, with pauses, it is a store that refuses what it should not."""


class HeldError(MarinRulesError):
    """Somebody else has the lease, and this worker must not wait."""


class TakeUp:
    """One worker's way to its work. `sleep` raises when the worker is to stop.

    `waits`: wait for any other holder of the lease; otherwise that is a `HeldError`.
    """

    def __init__(
        self,
        books: Books,
        gpus: GpuSlots,
        *,
        say: Callable[[str], None],
        sleep: Callable[[float], None],
        waits: bool = True,
    ) -> None:
        self.books = books
        self.lease = books.lease
        self.gpus = gpus
        self.taken_from = ""
        """Says whose lease was taken over; empty when it was free."""

        self._say = say
        self._sleep = sleep
        self._waits = waits
        self._waited = False
        self._refusals = 0
        self._told = ""

    def acquire(self) -> bool:
        """Take GPUs and lease, and write RUNNING; False when there turns out to be nothing to do.

        While one of the two is missing, the other is left to those that can use it.
        """
        pause = _WAIT_SECONDS[0]
        while True:
            missing = self.gpus.try_take()
            holder = self._patiently(self.lease.try_acquire if missing is None else self._find_holder)
            if missing is None and holder is None:
                taken = self._try_take_up(pause)
                if taken is not None:
                    return taken
                pause = min(pause * 1.5, _WAIT_SECONDS[1])
                continue
            self.gpus.release()
            if self.books.is_done(waited=self._waited):
                self._say_done()
                return False
            self._waited = self._waited or holder is not None
            reason = missing if holder is None else f"held by {describe(holder, time.time())}"
            if holder is not None and not self._waits:
                raise HeldError(reason)
            self._say_waiting("GPUs" if holder is None else holder.worker_id, str(reason))
            self._sleep(pause)
            pause = min(pause * 1.5, _WAIT_SECONDS[1])

    def release(self) -> None:
        """Release the lease. If the store does not answer, the lease expires anyway: no reason to fail."""
        try:
            patiently(self.lease.release, say=self._say, seconds=_RELEASE_SECONDS)
        except OSError as error:
            self._say(f"could not give its lease back, it will expire: {error}")

    def _find_holder(self) -> LeaseRecord | None:
        """Who has the lease, as far as can be seen without taking it."""
        with contextlib.suppress(CorruptLeaseError):
            record = peek_at(self.lease.path)
            if record is not None and not (record.owner and record.owner.is_dead_here()):
                return record
        return None

    def _try_take_up(self, pause: float) -> bool | None:
        """As `Books.take`, `None` to look again. The lease is kept only for work to run, or to look again."""
        try:
            try:
                taken = self.books.take(waited=self._waited)
            except TaskHeldError as error:
                self.release()
                self._say_waiting(error.holder.worker_id, str(error))
                self._sleep(pause)
                return None
            except ChangedError as error:
                # Its last worker changed the status at this very moment: what does it say now?
                self._refusals += 1
                if self._refusals >= _REFUSALS:
                    raise self._refused(error) from error
                self._sleep(pause)
                return None
        except BaseException:
            self.release()
            raise
        if not taken:
            self._say_done()
            self.release()
        elif self.lease.taken_from is not None:
            self.taken_from = f"takes over from {describe(self.lease.taken_from, time.time())}"
            self._say(self.taken_from)
        return taken

    def _say_waiting(self, waits_for: str, reason: str) -> None:
        """Once for each holder that is waited for."""
        if waits_for != self._told:
            self._told = waits_for
            self._say(f"waiting: {reason}")

    def _say_done(self) -> None:
        self._say("already done by another run" if not self._waited else "done by the other run")

    def _refused(self, error: ChangedError) -> StorageError:
        path = self.books.status_path
        message = (
            f"cannot write {path}: {_REFUSALS} times in a row the store refused the write as if somebody else had"
            f" changed the file, while this worker holds the step's lease ({error}). If no other program writes there,"
            " the store does not handle conditional writes (If-Match) as S3 does: see docs/stores.md, or choose another"
            " prefix."
        )
        return StorageError(errno.EIO, message, path)

    def _patiently[Result](self, action: Callable[[], Result]) -> Result:
        # A signal to stop ends the wait at once.
        return patiently(action, say=self._say, sleep=self._sleep)
