"""`marin-rules cluster discover`: a first version of the file of this Slurm cluster."""

from __future__ import annotations

import argparse

from marin_rules.clusters.slurm.discovery import cluster_file_text, discover_site


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `marin-rules`."""
    cluster = commands.add_parser("cluster", help="the Slurm cluster of this machine")
    actions = cluster.add_subparsers(dest="action", required=True)
    discover = actions.add_parser("discover", help="print its partitions and GPUs as a file for config/clusters")
    discover.set_defaults(run=_discover)


def _discover(options: argparse.Namespace) -> int:
    print(cluster_file_text(discover_site()), end="")
    return 0
