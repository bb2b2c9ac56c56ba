"""`marin-rules cluster discover`: a first version of the file of a cluster that can be asked from this machine."""

from __future__ import annotations

import argparse

from marin_rules.clusters.open import CLUSTER_NAMES, clusters_here, open_cluster
from marin_rules.clusters.protocol import Cluster
from marin_rules.errors import SettingsError


def configure(parser: argparse.ArgumentParser) -> None:
    """Tell the parser of this command what it takes."""
    actions = parser.add_subparsers(dest="action", required=True)
    discover = actions.add_parser("discover", help="print the machines of a cluster as a file for config/clusters")
    discover.add_argument(
        "kind", nargs="?", choices=CLUSTER_NAMES, help="of which cluster; without it of the one that is here"
    )
    discover.set_defaults(run=_discover)


def _discover(options: argparse.Namespace) -> int:
    cluster = open_cluster(options.kind) if options.kind else _the_only(clusters_here())
    print(cluster.first_file(), end="")
    return 0


def _the_only(clusters: list[Cluster]) -> Cluster:
    if len(clusters) == 1:
        return clusters[0]
    kinds = ", ".join(cluster.name for cluster in clusters) or "none"
    raise SettingsError(
        f"which cluster? From this machine can be asked: {kinds}. Run `marin-rules cluster discover KIND` where the"
        f" cluster's commands are; KIND is one of {', '.join(CLUSTER_NAMES)}"
    )
