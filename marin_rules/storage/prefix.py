"""Where the data of steps lives by default, and in which region that is.

The first of these that is known wins:

1. `MARIN_PREFIX`;
2. `root` of the cluster (`MARIN_CLUSTER`, see clusters.py);
3. the cluster's bucket for the region of this machine;
4. `{scheme}://marin-{region}`, when the cluster has no bucket for the region; without a cluster Marin's own bucket;
5. `/tmp/marin`, as long as it is the user's own.

The region of the machine is asked from Google's metadata server, and only for 3 and 4: not when a prefix or root is
given. Nor on a machine that is not Google's, unless a cluster is set: a laptop without settings would wait two
seconds at each start for a server that is not there.
"""

from __future__ import annotations

import os

from marin_rules.settings.data_buckets import (
    DEFAULT_SCHEME,
    Cluster,
    current_cluster,
    marin_bucket,
    region_of_marin_bucket,
)
from marin_rules.settings.ownership import Circle, UntrustedError, objection, user_name
from marin_rules.storage.metadata import is_google_machine, machine_region
from marin_rules.storage.private_files import make_private_folder
from marin_rules.urls import split_url

PREFIX_VARIABLE = "MARIN_PREFIX"
DEFAULT_PREFIX = "/tmp/marin"


def marin_prefix(cluster_name: str | None = None) -> str:
    """The prefix of all output paths, on this cluster or on the one that `MARIN_CLUSTER` names."""
    given = os.environ.get(PREFIX_VARIABLE)
    if given:
        return given
    cluster = current_cluster(cluster_name)
    if cluster is not None and cluster.root is not None:
        return cluster.root
    region = region_of_this_machine(cluster)
    if region is None:
        return DEFAULT_PREFIX
    if cluster is None:
        return f"{DEFAULT_SCHEME}://{marin_bucket(region)}"
    return cluster.bucket_url(region) or f"{cluster.scheme}://marin-{region}"


def claim_prefix(prefix: str) -> None:
    """Make sure, before anything is written, that the default prefix is this user's own: anybody could have created it.

    A prefix that was chosen, with a flag or in MARIN_PREFIX, is the user's business: groups share them on purpose.
    """
    check_default_prefix(prefix)
    if _is_default(prefix):
        make_private_folder(prefix)
        check_default_prefix(prefix)  # Another process may have been faster.


def check_default_prefix(prefix: str) -> None:
    """Refuse the default prefix if it is somebody else's."""
    if not _is_default(prefix):
        return
    found = objection(os.stat(os.path.dirname(prefix)), Circle.own())
    if found is not None:
        found = f"{os.path.dirname(prefix)} can be changed by others ({found})"
    # A link of one's own is as good as its target: nobody else can replace it.
    for look in (os.lstat, os.stat):
        try:
            status = look(prefix)
        except FileNotFoundError:
            break
        if status.st_uid != os.geteuid():
            found = f"it belongs to {user_name(status.st_uid)}"
        found = found or objection(status, Circle.own())
    if found is not None:
        raise UntrustedError(
            f"{prefix}, where steps are stored by default, is not used: {found}. Choose a folder of"
            f" your own with --prefix, `--config prefix=...` or {PREFIX_VARIABLE}."
        )


def _is_default(prefix: str) -> bool:
    return os.path.normpath(prefix) == DEFAULT_PREFIX and not os.environ.get(PREFIX_VARIABLE)


def marin_region() -> str | None:
    """The region of the prefix's bucket if the cluster knows it, else that of this machine, else that in the name of
    the prefix's bucket, if it is one of Marin's; None if unknown."""
    cluster = current_cluster()
    scheme, bucket, _ = split_url(marin_prefix())
    location = cluster.location_of(bucket) if cluster is not None and bucket else None
    location = location or region_of_this_machine(cluster)
    return location or (region_of_marin_bucket(bucket) if scheme == "gs" else None)


def region_of_this_machine(cluster: Cluster | None) -> str | None:
    """What the metadata server says, where it makes sense to ask."""
    return machine_region() if cluster is not None or is_google_machine() else None
