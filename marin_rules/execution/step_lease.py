"""The lease of a step, on whatever store its output path is. Object stores get theirs here."""

from __future__ import annotations

from marin_rules.errors import SettingsError
from marin_rules.execution.lease import Lease, SystemClock, lease_path
from marin_rules.execution.lease_store import LocalLeaseStore
from marin_rules.execution.owner import Owner
from marin_rules.storage.files import is_url


def open_lease(output_path: str, owner: Owner) -> Lease:
    """The lease of the step with this output path, not yet acquired."""
    if is_url(output_path):
        raise SettingsError(
            f"{output_path}: steps can only be leased on a local or shared file system so far. Use a prefix there."
        )
    return Lease(LocalLeaseStore(lease_path(output_path)), owner, SystemClock())
