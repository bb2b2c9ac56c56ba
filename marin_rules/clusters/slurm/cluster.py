"""Slurm as one of the clusters that `clusters.open` finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from marin_rules.checks import Check
from marin_rules.clusters.protocol import Cluster, ClusterError, WantedMachines
from marin_rules.clusters.slurm.commands import has_slurm
from marin_rules.clusters.slurm.discovery import cluster_file_text, discover_site
from marin_rules.clusters.slurm.job_queue import SlurmQueue
from marin_rules.clusters.slurm.listing import NAME
from marin_rules.clusters.slurm.site import Site, read_site
from marin_rules.errors import SettingsError


def _open_site(name: str | None) -> Site:
    if name is None:
        try:
            return discover_site()
        except ClusterError as error:
            raise SettingsError(
                "the run is for Slurm, but Slurm cannot be asked for its partitions here. Start it on a login node, or"
                f" name the cluster's file with --config cluster=NAME. ({error})"
            ) from error
    site = read_site(name)
    if site is None:
        raise SettingsError(
            f"the cluster {name} has no block 'slurm:' in its file: add one, or choose another with MARIN_CLUSTER or"
            " --config cluster=NAME; with none, Slurm is asked for its partitions."
        )
    return site


def _check(name: str | None, prefix: str, wanted: Sequence[WantedMachines]) -> Iterable[Check]:
    from marin_rules.clusters.slurm.check import check_cluster  # For this alone.

    # Planning itself says whether its queues have machines for a step; how many there may be is unknown.
    return check_cluster(name, prefix)


CLUSTER = Cluster(
    NAME,
    open_queue=lambda name: SlurmQueue(),
    open_site=_open_site,
    first_file=lambda: cluster_file_text(discover_site()),
    is_here=lambda name: has_slurm(),
    check=_check,
)
