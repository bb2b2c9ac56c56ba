"""The turn to submit a step's job: a lease beside the step's own, held while a driver looks for a job and submits one.

Without it two drivers that start together both find no job, and both submit one. The worker in the job takes the step's
own lease and knows nothing of this one. A driver that was killed during its turn delays drivers on other machines until
its lease expires; those on its own machine see that it is dead.
"""

from __future__ import annotations

import os

from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.open import open_lease_at
from marin_rules.storage.leases.owner import Owner

TURN_FILE = ".executor_submission.lock"


def open_turn(output_path: str) -> Lease:
    """The turn for the step with this output path, not yet taken."""
    return open_lease_at(os.path.join(output_path, TURN_FILE), Owner.current())
