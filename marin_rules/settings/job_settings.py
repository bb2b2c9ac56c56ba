"""The `jobs:` block of a cluster's file: what the jobs of a cluster find on its machines, and what they are given.

    jobs:
      shared: false                        # nodes do not see the files of the machine that starts the run
      python: /opt/python-3.13/bin/python  # a Python that they have, with the packages that the worker needs
      scratch: /local                      # a folder that each of them has
      variables: [LAB_TOKEN, 'LAB_*']      # what else jobs get from the driver's environment

It means the same for every kind of cluster. Without a file, or without the block, nodes share the driver's files if
their kind of cluster can.
"""

from __future__ import annotations

from dataclasses import dataclass

from marin_rules.errors import SettingsError
from marin_rules.settings.cluster_file import find_cluster_file, read_block


@dataclass(frozen=True)
class JobSettings:
    """How jobs get their code and their variables."""

    shared: bool = True
    """Whether nodes see the driver's files (its Python, the package, the working directory) at the same paths."""

    python: str | None = None
    """The Python of nodes that do not; with None, uv makes one there."""

    scratch: str = "/tmp"
    """A folder that each node has, for what jobs keep there: their code, environments and logs."""

    variables: tuple[str, ...] = ()
    """Names of variables that jobs get in addition to the usual ones; `LAB_*` stands for all that begin so."""


def read_job_settings(cluster: str | None, *, may_share: bool = True) -> JobSettings:
    """The block in the file of this cluster, on whose kind it depends whether its machines may share files."""
    if cluster is None:
        return JobSettings(shared=may_share)
    path = find_cluster_file(cluster)
    given = {key: value for key, value in read_block(path, "jobs").items() if value is not None}
    settings = JobSettings(**{"shared": may_share, **given, "variables": tuple(given.get("variables", ()))})
    if settings.shared and not may_share:
        raise SettingsError(
            f"cluster file {path}: jobs.shared is true, but machines of this kind of cluster never have the files of"
            " the machine that starts the run: take it out"
        )
    if settings.shared and settings.python is not None:
        raise SettingsError(
            f"cluster file {path}: jobs.python is for nodes that do not share the driver's files, and jobs.shared is"
            " not false: take one of them out"
        )
    return settings
