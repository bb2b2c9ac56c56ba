"""What a worker does with its lease, as in `marin_rules.worker.worker`, with nothing between the calls."""

import contextlib
from collections.abc import Callable

from marin_rules.state.status import Status, parse_status, status_bytes
from marin_rules.storage.explain import UnansweredError
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.store import ChangedError
from support.lease_models.replay import STATUS, MakeLease, Seat

LOOKS = 3
"""How often a worker looks at a lease that somebody else holds: to see it, to see it stale, and once more."""

_TRIES = 4


def run_step(seat: Seat, make_lease: MakeLease) -> str:
    """Run the step unless it is done; wait for whoever has it."""
    return _run(seat, make_lease, is_forced=False)


def run_step_again(seat: Seat, make_lease: MakeLease) -> str:
    """Run the step though it is done."""
    return _run(seat, make_lease, is_forced=True)


def _run(seat: Seat, make_lease: MakeLease, *, is_forced: bool) -> str:
    lease = make_lease(seat)
    try:
        if not _acquire(seat, lease, is_forced):
            return "not run"
        lease.refresh()
        done = _bytes(seat, Status.SUCCESS, again=is_forced)
        patiently(lambda: lease.overwrite(STATUS, done))
        return "done"
    except LeaseLostError:
        return "lost"
    except UnansweredError:
        return "no answer"
    finally:
        with contextlib.suppress(UnansweredError):
            patiently(lease.release)


def _acquire(seat: Seat, lease: Lease, is_forced: bool) -> bool:
    looks = 0
    while looks < LOOKS:
        if patiently(lease.try_acquire) is None:
            try:
                return take_up(seat, lease, is_done_enough=looks > 0 or not is_forced)
            except ChangedError:
                continue
        looks += 1
    return False


def take_up(seat: Seat, lease: Lease, *, is_done_enough: bool) -> bool:
    """With the lease in hand: see what is to be done, and write RUNNING; False when there is nothing to do."""
    if is_done(patiently(lambda: lease.read(STATUS))) and is_done_enough:
        return False
    running = _bytes(seat, Status.RUNNING)
    patiently(lambda: lease.commit(STATUS, running, durable=False))
    return True


def is_done(data: bytes | None) -> bool:
    return data is not None and parse_status(data, STATUS) is Status.SUCCESS


def patiently[Result](action: Callable[[], Result]) -> Result:
    for _ in range(_TRIES):
        with contextlib.suppress(UnansweredError):
            return action()
    return action()


def _bytes(seat: Seat, status: Status, *, again: bool = False) -> bytes:
    return status_bytes(status, "step" if seat.kind.is_fenced else "model://bucket/step", again=again)
