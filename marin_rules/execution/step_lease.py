"""The lease of a step, on whatever store its output path is. Object stores get theirs here."""

from __future__ import annotations

from marin_rules.errors import SettingsError
from marin_rules.execution.lease import Lease, SystemClock, lease_path
from marin_rules.execution.lease_store import LocalLeaseStore
from marin_rules.execution.owner import Owner
from marin_rules.storage.files import is_url


def check_leasable(prefix: str) -> None:
    """Refuse a prefix where steps cannot be leased, before anything starts."""
    if is_url(prefix):
        raise SettingsError(
            f"the prefix {prefix} is on an object store, where steps cannot be leased yet. Use a folder on a local or"
            " shared file system."
        )


def open_lease(output_path: str, owner: Owner) -> Lease:
    """The lease of the step with this output path, not yet acquired."""
    check_leasable(output_path)
    return Lease(LocalLeaseStore(lease_path(output_path)), owner, SystemClock())
