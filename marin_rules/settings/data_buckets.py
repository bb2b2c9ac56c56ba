"""Clusters: which bucket belongs to which region, read from `config/clusters/<name>.yaml`.

Only the `data:` block of the file is read here (see `cluster_file`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from marin_rules.errors import SettingsError
from marin_rules.geography import joined, normalised
from marin_rules.settings.cluster_file import cluster_name, find_cluster_file, mapping, read_block, text
from marin_rules.urls import PREFIX_SCHEMES, check_prefix

DEFAULT_SCHEME = "gs"
DEFAULT_TEMPORARY_PATH = "tmp/ttl={days}d"
DEFAULT_TEMPORARY_DAYS = (1, 2, 3, 4, 5, 6, 7, 14, 30)

_DATA_KEYS = ("region_buckets", "scheme", "temp", "root")
_TEMP_KEYS = ("path", "ttl_days")


@dataclass(frozen=True)
class Cluster:
    """Where a cluster keeps its data."""

    name: str

    region_buckets: Mapping[str, str] = field(default_factory=dict)
    """The bucket of each region, without a scheme."""

    scheme: str = DEFAULT_SCHEME

    temporary_path: str = DEFAULT_TEMPORARY_PATH
    """Where temporary data go in a bucket; `{days}` stands for the days that they are kept."""

    temporary_days: tuple[int, ...] = DEFAULT_TEMPORARY_DAYS
    """How long data can be kept: the buckets have a deletion rule for each."""

    root: str | None = None
    """The prefix of all steps, wherever they run; None for the bucket of the region where they run."""

    def bucket_url(self, region: str) -> str | None:
        """The bucket of a region, with its scheme."""
        bucket = self.region_buckets.get(normalised(region))
        return f"{self.scheme}://{bucket}" if bucket else None

    def location_of(self, bucket: str) -> str | None:
        """The region that a bucket is for, or all of them joined; None for a bucket that is not in the map."""
        return joined([region for region, its_bucket in self.region_buckets.items() if its_bucket == bucket])


def current_cluster() -> Cluster | None:
    """The cluster that `MARIN_CLUSTER` names, or None if it names none."""
    name = cluster_name()
    return read_cluster(name) if name else None


def read_cluster(name: str) -> Cluster:
    """The cluster of this name; a `SettingsError` if there is none, or if its file is wrong."""
    path = find_cluster_file(name)
    status = os.stat(path)
    key = (str(path), status.st_mtime_ns, status.st_size)
    # Asked for at each read of a bucket: the file is parsed once, and again when it has changed.
    if key not in _parsed:
        _parsed[key] = _parse(name, path)
    return _parsed[key]


_parsed: dict[tuple[str, int, int], Cluster] = {}


def _parse(name: str, path: Path) -> Cluster:
    data = read_block(path, "data", _DATA_KEYS)
    temp = mapping(path, "data.temp", data.get("temp") or None, _TEMP_KEYS)
    return Cluster(
        name=name,
        region_buckets=MappingProxyType(_region_buckets(path, data.get("region_buckets") or None)),
        scheme=_scheme(path, data.get("scheme", DEFAULT_SCHEME)),
        temporary_path=_temporary_path(path, temp.get("path", DEFAULT_TEMPORARY_PATH)),
        temporary_days=_temporary_days(path, temp.get("ttl_days", DEFAULT_TEMPORARY_DAYS)),
        root=_root(path, data.get("root")),
    )


def _region_buckets(path: Path, value: object) -> dict[str, str]:
    buckets: dict[str, str] = {}
    for region, bucket in mapping(path, "data.region_buckets", value).items():
        where = f"data.region_buckets.{region}"
        bucket = text(path, where, bucket)
        if "/" in bucket or not bucket.strip():
            name = bucket.partition("://")[2].strip("/") or "my-bucket"
            raise SettingsError(f"cluster file {path}: {where} is {bucket!r}; write the bucket's name alone: {name}")
        buckets[normalised(text(path, "a region in data.region_buckets", region))] = bucket
    return buckets


def _scheme(path: Path, value: object) -> str:
    scheme = text(path, "data.scheme", value)
    if scheme not in PREFIX_SCHEMES:
        raise SettingsError(f"cluster file {path}: data.scheme is {scheme!r}; write one of {', '.join(PREFIX_SCHEMES)}")
    return scheme


def _temporary_path(path: Path, value: object) -> str:
    pattern = text(path, "data.temp.path", value)
    try:
        different = pattern.format(days=1) != pattern.format(days=2)
    except (KeyError, IndexError, ValueError):
        different = False
    if not different or pattern.startswith("/") or pattern.endswith("/"):
        raise SettingsError(
            f"cluster file {path}: data.temp.path is {pattern!r}; write a path below the bucket with {{days}} in it, as"
            f" in {DEFAULT_TEMPORARY_PATH!r}"
        )
    return pattern


def _temporary_days(path: Path, value: object) -> tuple[int, ...]:
    days = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
    if not days or not all(isinstance(day, int) and not isinstance(day, bool) and day > 0 for day in days):
        raise SettingsError(
            f"cluster file {path}: data.temp.ttl_days is {value!r}; write a list of whole days, as in [1, 7, 30]"
        )
    return tuple(sorted(set(days)))


def _root(path: Path, value: object) -> str | None:
    if value is None:
        return None
    try:
        return check_prefix(text(path, "data.root", value))
    except SettingsError as error:
        raise SettingsError(f"cluster file {path}: data.root: {error}") from error
