"""`marin-rules cluster discover`: a first version of the file of this Slurm cluster."""

from __future__ import annotations

import argparse

from marin_rules.clusters.slurm.discovery import cluster_file_text, discover_site


def configure(parser: argparse.ArgumentParser) -> None:
    """Tell the parser of this command what it takes."""
    actions = parser.add_subparsers(dest="action", required=True)
    discover = actions.add_parser("discover", help="print its partitions and GPUs as a file for config/clusters")
    discover.set_defaults(run=_discover)


def _discover(options: argparse.Namespace) -> int:
    print(cluster_file_text(discover_site()), end="")
    return 0
