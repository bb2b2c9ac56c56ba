"""Clusters: which bucket belongs to which region, from the `data:` block of `config/clusters/<name>.yaml`.

The file is valid when it gets here (see `cluster_file`): its values are only converted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from marin_rules.geography import joined, normalised
from marin_rules.settings.cluster_file import cluster_name, find_cluster_file, read_block, state_of

DEFAULT_SCHEME = "gs"
DEFAULT_TEMPORARY_PATH = "tmp/ttl={days}d"
DEFAULT_TEMPORARY_DAYS = (1, 2, 3, 4, 5, 6, 7, 14, 30)

_MARIN_BUCKETS = MappingProxyType({"europe-west4": "marin-eu-west4"})
"""Marin's own buckets that are not called after their regions."""


def marin_bucket(region: str) -> str:
    """Marin's bucket in a region, for those who work in its project without a cluster file."""
    return _MARIN_BUCKETS.get(normalised(region), f"marin-{region}")


def region_of_marin_bucket(bucket: str) -> str | None:
    """The region of one of Marin's buckets, by its name; None for a bucket of somebody else."""
    regions = {name: region for region, name in _MARIN_BUCKETS.items()}
    named = bucket.removeprefix("marin-")
    return regions.get(bucket) or (named if named != bucket else None)


@dataclass(frozen=True)
class Cluster:
    """Where a cluster keeps its data."""

    name: str

    region_buckets: Mapping[str, str] = field(default_factory=dict)
    """The bucket of each region, without a scheme."""

    scheme: str = DEFAULT_SCHEME

    temporary_path: str = DEFAULT_TEMPORARY_PATH
    """Where temporary data goes in a bucket; `{days}` stands for the days that it is kept."""

    temporary_days: tuple[int, ...] = DEFAULT_TEMPORARY_DAYS
    """How long data can be kept: the buckets have a deletion rule for each of these."""

    root: str | None = None
    """The prefix of all steps, wherever they run; None for the bucket of the region where they run."""

    def bucket_url(self, region: str) -> str | None:
        """The bucket of a region, with its scheme."""
        bucket = self.region_buckets.get(normalised(region))
        return f"{self.scheme}://{bucket}" if bucket else None

    def location_of(self, bucket: str) -> str | None:
        """The region that a bucket is for, or all of them joined; None for a bucket that is not in the map."""
        return joined([region for region, its_bucket in self.region_buckets.items() if its_bucket == bucket])


def current_cluster(name: str | None = None) -> Cluster | None:
    """The cluster of this name, or else the one that `MARIN_CLUSTER` names; None if there is neither."""
    name = name or cluster_name()
    return read_cluster(name) if name else None


def read_cluster(name: str) -> Cluster:
    """The cluster of this name; a `SettingsError` if there is none, or if its file is wrong."""
    path = find_cluster_file(name)
    return _cluster(name, path, *state_of(path))


@lru_cache(maxsize=16)
def _cluster(name: str, path: Path, changed: int, size: int) -> Cluster:
    """Used at each read of a bucket: created once for each state of the file."""
    data = read_block(path, "data")
    temp = data.get("temp") or {}
    buckets = data.get("region_buckets") or {}
    return Cluster(
        name=name,
        region_buckets=MappingProxyType({normalised(region): bucket for region, bucket in buckets.items()}),
        scheme=data.get("scheme") or DEFAULT_SCHEME,
        temporary_path=temp.get("path") or DEFAULT_TEMPORARY_PATH,
        temporary_days=tuple(sorted(set(temp.get("ttl_days") or DEFAULT_TEMPORARY_DAYS))),
        root=data.get("root"),
    )
