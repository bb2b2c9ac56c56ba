"""Holding a lease for a while, from a program that is not a worker: kept alive by a heartbeat, released at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from marin_rules.errors import MarinRulesError
from marin_rules.storage.leases.heartbeat import Heartbeat
from marin_rules.storage.leases.lease import Lease


@contextlib.contextmanager
def held(lease: Lease) -> Iterator[Callable[[], None]]:
    """Keep a lease that was taken, however long it takes, and release it at the end.

    What it yields raises if the lease may have been lost: to be called right before something that nothing fences.
    """
    heartbeat = Heartbeat(lease, wake=lambda: None, say=lambda _: None)
    heartbeat.start()
    try:
        yield heartbeat.check
    finally:
        heartbeat.stop()
        with contextlib.suppress(OSError):  # Then it expires.
            lease.release()


def is_free(lease: Lease) -> bool:
    """Whether a lease can be taken; it is not kept. False if that cannot be told."""
    try:
        if lease.try_acquire() is not None:
            return False
        lease.release()
    except (OSError, MarinRulesError):
        return False
    return True
