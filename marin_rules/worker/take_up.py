"""Taking a step up: wait for its lease and its GPUs, see what is to be done, write RUNNING.

A worker that waited for another run's attempt accepts what came of it; one that found the step free runs it.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable
from typing import Any

from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.failures import PreviousTaskFailedError
from marin_rules.state.info import check_version, info_path, parse_info
from marin_rules.state.status import Status, parse_status, read_status, status_bytes, status_path
from marin_rules.state.step_lease import peek
from marin_rules.state.step_log import log_path
from marin_rules.storage.explain import StorageError
from marin_rules.storage.files import read_bytes
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.record import CorruptLeaseError, LeaseRecord, describe
from marin_rules.storage.leases.store import ChangedError
from marin_rules.storage.patience import patiently
from marin_rules.worker.gpu_slots import GpuSlots

_WAIT_SECONDS = (0.05, 2.0)
"""First and longest pause between two looks at a lease that somebody else holds."""

_RELEASE_SECONDS = 10.0
"""How long a lease that nobody needs any more is worth the wait for its store."""

_REFUSALS = 8
"""How often in a row the status may turn out to be changed by others while we hold the lease. Once is a predecessor's
last word; so many, with pauses, are a store that refuses what it should not."""


class TakeUp:
    """One worker's way to a step. `sleep` raises when the worker is to stop."""

    def __init__(
        self,
        plan: FrozenPlan,
        step: FrozenStep,
        lease: Lease,
        gpus: GpuSlots,
        *,
        in_job: bool,
        say: Callable[[str], None],
        sleep: Callable[[float], None],
    ) -> None:
        self.plan = plan
        self.step = step
        self.lease = lease
        self.gpus = gpus
        self.forced = step.index in plan.forced
        self.taken_from = ""
        """Says whose lease was taken over; empty when it was free."""

        self._in_job = in_job
        self._say = say
        self._sleep = sleep
        self._waited = False
        self._previous: bytes | None = None

    def acquire(self) -> bool:
        """Take GPUs and lease, and write RUNNING; False when the step turns out to be done already.

        While one of the two is missing, the other is left to those who can use it.
        """
        pause, told, refusals = _WAIT_SECONDS[0], "", 0
        while True:
            missing = self.gpus.try_take()
            holder = self._patiently(self.lease.try_acquire if missing is None else self._find_holder)
            if missing is None and holder is None:
                taken = self._try_take_up(refusals, pause)
                if taken is not None:
                    return taken
                refusals += 1
                pause = min(pause * 1.5, _WAIT_SECONDS[1])
                continue
            self.gpus.release()
            status = read_status(self.step.output_path)
            if status is Status.SUCCESS and (self._waited or not self.forced):
                check_version(self.plan, self.step, read_bytes(info_path(self.step.output_path)))
                self._say_done()
                return False
            self._waited = self._waited or holder is not None
            waits_for = "GPUs" if holder is None else holder.worker_id
            if waits_for != told:
                told = waits_for
                reason = missing if holder is None else f"held by {describe(holder, time.time())}"
                self._say(f"waiting: {reason}")
            self._sleep(pause)
            pause = min(pause * 1.5, _WAIT_SECONDS[1])

    def release(self) -> None:
        """Give the lease back. If the store does not answer, the lease expires anyway: no reason to fail."""
        try:
            patiently(self.lease.release, say=self._say, seconds=_RELEASE_SECONDS)
        except OSError as error:
            self._say(f"could not give its lease back, it will expire: {error}")

    @property
    def previous_info(self) -> dict[str, Any]:
        """What the last worker wrote down about the step; nothing if this is the first."""
        return {} if self._previous is None else parse_info(self._previous, info_path(self.step.output_path))

    def _find_holder(self) -> LeaseRecord | None:
        """Who has the lease, as far as can be seen without taking it."""
        with contextlib.suppress(CorruptLeaseError):
            record = peek(self.step.output_path)
            if record is not None and not (record.owner and record.owner.is_dead_here()):
                return record
        return None

    def _try_take_up(self, refusals: int, pause: float) -> bool | None:
        """As `_take_up`, `None` to look again. The lease is kept only for a step that is to run, or to look again."""
        try:
            try:
                taken = self._take_up()
            except ChangedError as error:
                # Its last worker changed the status in this very moment: what does it say now?
                if refusals + 1 >= _REFUSALS:
                    raise self._refused(error) from error
                self._sleep(pause)
                return None
        except BaseException:
            self.release()
            raise
        if not taken:
            self.release()
        return taken

    def _take_up(self) -> bool:
        """With the lease in hand: see what is to be done, and write RUNNING; False when there is nothing to do."""
        path = status_path(self.step.output_path)
        data = self._patiently(lambda: self.lease.read(path))
        status = None if data is None else parse_status(data, path)
        # Before anything is believed: the run that had the step may have put another version on the same path.
        self._previous = self._patiently(lambda: self.lease.read(info_path(self.step.output_path)))
        check_version(self.plan, self.step, self._previous)
        if status is Status.SUCCESS and (self._waited or not self.forced):
            self._say_done()
            return False
        if status is Status.FAILED and not self.plan.run.force_run_failed and not self._waited:
            self._refuse_previous_failure()
        if status is Status.FAILED and self._waited:
            raise MarinRulesError(
                f"the step failed in the other run that had it; {log_path(self.step.output_path)} tells why."
                " Start the experiment again to run it once more."
            )
        if status is Status.CANCELLED and self._is_retry() and not self._in_job:
            raise MarinRulesError("the step was stopped in this run; start the experiment again to run it once more.")
        running = status_bytes(Status.RUNNING, self.step.output_path)
        self._patiently(lambda: self.lease.commit(path, running, durable=False))
        if self.lease.taken_from is not None:
            self.taken_from = f"takes over from {describe(self.lease.taken_from, time.time())}"
            self._say(self.taken_from)
        return True

    def _say_done(self) -> None:
        self._say("already done by another run" if not self._waited else "done by the other run")

    def _refuse_previous_failure(self) -> None:
        """Refuse a step that failed before this run; a retry within the run is allowed."""
        if self._is_retry():
            return
        raise PreviousTaskFailedError(
            f"step {self.step.name} failed previously and is not run again (force_run_failed=false); its log:"
            f" {log_path(self.step.output_path)}"
        )

    def _is_retry(self) -> bool:
        """Whether this run has tried the step before."""
        return bool(self.previous_info.get("run", {}).get("id") == self.plan.run.id)

    def _refused(self, error: ChangedError) -> StorageError:
        path = status_path(self.step.output_path)
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
