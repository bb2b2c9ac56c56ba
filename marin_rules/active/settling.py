"""Writes what a stopped worker could not: the status CANCELLED, under the step's lease, which is then released."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from marin_rules.active.active_step import ActiveStep, StepAddress
from marin_rules.active.clock import Clock
from marin_rules.active.queues import JobName, name_of
from marin_rules.errors import MarinRulesError
from marin_rules.state.status import Status, parse_status, status_bytes, status_path
from marin_rules.state.step_lease import open_lease
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import LeaseRecord, describe
from marin_rules.storage.leases.store import ChangedError

_POLL_SECONDS = 0.2
_PASSING_SECONDS = 3.0
"""How long another worker may hold the lease before it finds that the step was stopped."""

_LATE_SECONDS = 15.0
"""How long after the end of its lifetime a lease may be seen to have expired."""


@dataclass(frozen=True)
class Stopped:
    """The outcome of stopping a step."""

    step: StepAddress
    status: Status | None
    """None if only its worker knows its output path, or if somebody has it again."""

    holder: LeaseRecord | None = None
    """Who took up the step at once: another run that was waiting for it."""


def open_own_lease(output_path: str) -> Lease:
    """The lease of a step, for this process."""
    return open_lease(output_path, Owner.current())


class Settling:
    """Makes sure that the lease of a step is free and that its status records its end."""

    def __init__(self, say: Callable[[str], None], clock: Clock, open_lease: Callable[[str], Lease]) -> None:
        self._say = say
        self._clock = clock
        self._open_lease = open_lease

    def settle(self, step: StepAddress, found: Sequence[ActiveStep], cancelled: Collection[JobName]) -> Stopped:
        """Settle a step whose workers and jobs (`found`) have ended, some of them since they were `cancelled`."""
        if step.output_path is None:
            return Stopped(step, None)
        lease = self._open_lease(step.output_path)
        holder = self._take_over(lease, step, {one.lease.worker_id for one in found if one.lease is not None})
        if holder is not None:
            return Stopped(step, None, holder)
        # A job that was cancelled may have lost its processes before its worker knew why: that looks like a failure.
        may_have_failed = any(
            one.lease is not None and (one.job is None or name_of(one.job) not in cancelled) for one in found
        )
        try:
            return Stopped(step, _mark(lease, step.output_path, may_have_failed=may_have_failed))
        except LeaseLostError as lost:
            return Stopped(step, None, lost.holder)
        finally:
            lease.release()

    def _take_over(self, lease: Lease, step: StepAddress, stopped: Collection[str]) -> LeaseRecord | None:
        """Take the lease that a stopped worker has left; None if it is ours, otherwise who was quicker."""
        give_up: float | None = None
        passed_by = self._clock.monotonic() + _PASSING_SECONDS
        while (holder := lease.try_acquire()) is not None:
            if holder.worker_id not in stopped:
                if self._clock.monotonic() > passed_by:
                    return holder
                self._clock.sleep(_POLL_SECONDS)
                continue
            if give_up is None:
                give_up = self._clock.monotonic() + holder.lifetime + _LATE_SECONDS
                self._say(
                    f"stopping {step.name}: its worker could not give its lease back, waiting for it to expire"
                    f" (at most {holder.lifetime:.0f} s)"
                )
            if self._clock.monotonic() > give_up:
                raise MarinRulesError(
                    f"step {step.name} is not stopped: held by {describe(holder, self._clock.time())}"
                )
            self._clock.sleep(_POLL_SECONDS)
        return None


def _mark(lease: Lease, output_path: str, *, may_have_failed: bool) -> Status | None:
    """Write CANCELLED, unless the step has ended on its own; returns the status afterwards."""
    path = status_path(output_path)
    while True:
        data = lease.read(path)
        status = None if data is None else parse_status(data, path)
        # The failure of a step that was queued is that of an earlier attempt.
        if status in (Status.SUCCESS, Status.CANCELLED) or (status is Status.FAILED and may_have_failed):
            return status
        with contextlib.suppress(ChangedError):
            lease.commit(path, status_bytes(Status.CANCELLED, output_path))
            return Status.CANCELLED
