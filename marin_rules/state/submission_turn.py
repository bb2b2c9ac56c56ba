"""The turn to submit a step's job: a lease beside the step's own, held while a driver looks for a job and submits one.

Without it two drivers that start together both find no job, and both submit one. The worker in the job takes the step's
own lease and knows nothing of this one. A driver that was killed in its turn holds up drivers on other machines until
its lease expires; those on its own machine see that it is dead.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from marin_rules.storage.leases.heartbeat import Heartbeat
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.open import open_lease_at
from marin_rules.storage.leases.owner import Owner

TURN_FILE = ".executor_submission.lock"


def open_turn(output_path: str) -> Lease:
    """The turn for the step with this output path, not yet taken."""
    return open_lease_at(os.path.join(output_path, TURN_FILE), Owner.current())


@contextlib.contextmanager
def kept(turn: Lease) -> Iterator[Callable[[], None]]:
    """Keep a turn that was taken, however long the cluster takes to answer, and give it back at the end.

    What it yields raises if the turn may have been lost: to be called right before the job is submitted.
    """
    heartbeat = Heartbeat(turn, wake=lambda: None, say=lambda _: None)
    heartbeat.start()
    try:
        yield heartbeat.check
    finally:
        heartbeat.stop()
        with contextlib.suppress(OSError):  # Then it expires.
            turn.release()
