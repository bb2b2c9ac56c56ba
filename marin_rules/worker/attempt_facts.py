"""What is known about an attempt when it begins, as recorded."""

from __future__ import annotations

from typing import Any

from marin_rules.plans.run import Run
from marin_rules.storage.leases.owner import Owner
from marin_rules.units import timestamp


def attempt_facts(run: Run, owner: Owner, attempt: int, started: float) -> dict[str, Any]:
    """For the `run` block of an info file."""
    return {
        "id": run.id,
        "worker_id": owner.worker_id,
        "host": owner.host,
        "user": owner.user,
        "git_commit": run.git_commit,
        "caller_path": run.caller_path,
        "attempt": attempt,
        "started": timestamp(started),
    }
