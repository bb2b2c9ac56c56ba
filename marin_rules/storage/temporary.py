"""Places for temporary data, below folders that a bucket's lifecycle rules empty after some days.

    gs://marin-us-central1/tmp/ttl=7d/...

The days are those that the cluster has rules for (1-7, 14 and 30), rounded up: data never disappears sooner than asked,
except that more than the longest time becomes the longest. On a local disk nothing deletes them.
"""

from __future__ import annotations

import os

from marin_rules.settings.data_buckets import DEFAULT_TEMPORARY_DAYS, DEFAULT_TEMPORARY_PATH, current_cluster
from marin_rules.storage.prefix import marin_prefix
from marin_rules.urls import bucket_root, is_url


def marin_temp_bucket(ttl_days: float, prefix: str = "", source_prefix: str | None = None) -> str:
    """A path for data that may be deleted after `ttl_days`: in the bucket of `source_prefix` (or of the steps).

    `prefix` is added below it. A local `source_prefix` gives a folder below it.
    """
    cluster = current_cluster()
    pattern = cluster.temporary_path if cluster else DEFAULT_TEMPORARY_PATH
    offered = cluster.temporary_days if cluster else DEFAULT_TEMPORARY_DAYS
    source = marin_prefix() if source_prefix is None else source_prefix
    root = bucket_root(source) if is_url(source) else source
    place = os.path.join(root, pattern.format(days=_rounded_up(ttl_days, offered)))
    return os.path.join(place, prefix.strip("/")) if prefix.strip("/") else place


def _rounded_up(days: float, offered: tuple[int, ...]) -> int:
    if not days > 0:
        raise ValueError(f"ttl_days is {days}: write how many days the data is kept, such as 1")
    return next((day for day in offered if day >= days), offered[-1])
