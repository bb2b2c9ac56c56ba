"""Slurm as one of the clusters that `clusters.open` finds."""

from __future__ import annotations

from marin_rules.clusters.protocol import Cluster, ClusterError
from marin_rules.clusters.slurm.commands import has_slurm
from marin_rules.clusters.slurm.discovery import cluster_file_text, discover_site
from marin_rules.clusters.slurm.job_queue import SlurmQueue
from marin_rules.clusters.slurm.listing import NAME
from marin_rules.clusters.slurm.resources import RESOURCE_NAMES
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


CLUSTER = Cluster(
    NAME,
    open_queue=SlurmQueue,
    open_site=_open_site,
    first_file=lambda: cluster_file_text(discover_site()),
    is_here=has_slurm,
    resource_names=RESOURCE_NAMES,
)
