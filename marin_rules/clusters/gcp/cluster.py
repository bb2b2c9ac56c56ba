"""Google Cloud as one of the clusters that `clusters.open` finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from marin_rules.checks import Check
from marin_rules.clusters.gcp.job_queue import BatchQueue
from marin_rules.clusters.gcp.listing import NAME
from marin_rules.clusters.gcp.site import GcpSite, read_site
from marin_rules.clusters.protocol import Cluster, WantedMachines
from marin_rules.errors import SettingsError
from marin_rules.project import project_folder

_EXAMPLE = "config/clusters/gcp-example.yaml"


def _open_site(name: str | None) -> GcpSite:
    site = None if name is None else read_site(name)
    if site is not None:
        return site
    which = "no cluster was chosen" if name is None else f"the file of cluster {name} has no block 'gcp:'"
    raise SettingsError(
        f"the run is for Google Cloud, but {which}: name a project, regions and machines in"
        f" config/clusters/NAME.yaml, as {_EXAMPLE} shows, and choose it with --config cluster=NAME or MARIN_CLUSTER"
    )


def _is_here(name: str | None) -> bool:
    with suppress(SettingsError):
        return name is not None and read_site(name) is not None
    return False


def _check(name: str | None, prefix: str, wanted: Sequence[WantedMachines]) -> Iterable[Check]:
    from marin_rules.clusters.gcp.check import check_site  # Only for this.

    return check_site(_open_site(name), prefix, wanted)


CLUSTER = Cluster(
    NAME,
    open_queue=lambda name: BatchQueue(_open_site(name)),
    open_site=_open_site,
    first_file=lambda: (project_folder() / _EXAMPLE).read_text(encoding="utf-8"),
    is_here=_is_here,
    may_share_files=False,
    check=_check,
)
