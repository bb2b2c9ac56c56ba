"""Finds a cluster by its name. Only the requested one is imported.

To add a cluster, implement the protocols of `clusters.protocol` in a folder of its own, with a module `cluster.py` that
holds its `CLUSTER`, a module `allocation.py` (see `clusters.allocation`) and a module `resources.py` whose
`RESOURCE_NAMES` are all names that its site may answer with, and name it here.
"""

from __future__ import annotations

from importlib import import_module

from marin_rules.clusters.protocol import Cluster
from marin_rules.errors import SettingsError

CLUSTER_NAMES = ("slurm", "gcp")
"""The clusters, each a folder beside this file."""

_MODULES = {
    **{name: f"marin_rules.clusters.{name}.cluster" for name in CLUSTER_NAMES},
    "slurm-drmaa": "marin_rules.clusters.slurm.drmaa_cluster",
}
"""All ways to reach them: a cluster may have more than one."""


def open_cluster(name: str) -> Cluster:
    """The cluster of this name; `SettingsError` if there is none."""
    module = _MODULES.get(name)
    if module is None:
        raise SettingsError(f"no cluster {name!r}; there are {', '.join(_MODULES)}")
    cluster: Cluster = import_module(module).CLUSTER
    return cluster


def resource_names() -> set[str]:
    """All names that the sites of all clusters may give to the resources of jobs. Used by every run, hence cheap."""
    modules = (import_module(f"marin_rules.clusters.{name}.resources") for name in CLUSTER_NAMES)
    return {name for module in modules for name in module.RESOURCE_NAMES}


def clusters_here(name: str | None) -> list[Cluster]:
    """All clusters that can be asked from this machine; `name` is that of the cluster's file that was chosen."""
    return [cluster for cluster in map(open_cluster, CLUSTER_NAMES) if cluster.is_here(name)]
