"""Which region data is in, and which region we are in.

The location of a bucket is taken from the cluster's map, or else requested from Google, once per bucket and process. A
bucket that will not say (no permission, no network, no such bucket) has no known location: `None`, and no error.

`here()` is where data should be: the region of the bucket that steps are written to, else that of the machine.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

from marin_rules.geography import bucket_of, is_region, joined, normalised
from marin_rules.settings.data_buckets import current_cluster
from marin_rules.storage.prefix import marin_prefix, region_of_this_machine

logger = logging.getLogger(__name__)

LOOKUP_TIMEOUT_SECONDS = 10.0
"""For one bucket, including gcsfs's own retries."""

_QUESTIONS = ("b/{}/storageLayout", "b/{}")
"""The first needs only the right to list objects, which readers have; the second that to see the bucket."""

_locations: dict[str, str | None] = {}
"""Cached answers: a bucket does not move."""

_asking = threading.Lock()


def _after_fork() -> None:
    # A thread of the parent may have held it; nobody in the child would release it.
    global _asking
    _asking = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def region_of(url: str, cluster_name: str | None = None) -> str | None:
    """The location of the bucket that a `gs://` URL is in: a region, a multi-region, or None if unknown.

    The cluster of this name knows its own buckets, else the one that `MARIN_CLUSTER` names. May be called on any
    thread, including that of fsspec's event loop.
    """
    bucket = bucket_of(url)
    if bucket is None:
        return None
    known, location = known_location(bucket, cluster_name)
    if known:
        return location
    with _asking:
        if bucket not in _locations:
            _locations[bucket] = _ask_in_a_thread(bucket)
        return _locations[bucket]


def known_location(bucket: str, cluster_name: str | None = None) -> tuple[bool, str | None]:
    """Whether the question is settled without asking Google, and the answer."""
    cluster = current_cluster(cluster_name)
    location = cluster.location_of(bucket) if cluster is not None and cluster.scheme == "gs" else None
    if location is not None:
        return True, location
    return bucket in _locations, _locations.get(bucket)


async def ask_location(filesystem: Any, bucket: str) -> str | None:
    """Ask Google through a gcsfs filesystem, on the filesystem's own event loop, and remember the answer."""
    location: str | None = None
    for question in _QUESTIONS:
        try:
            answer = await filesystem._call("GET", question, bucket, json_out=True)
            location = location_in(answer)
            break
        except Exception as error:
            logger.debug("bucket %s does not say where it is: %s", bucket, error)
    _locations[bucket] = location
    return location


def location_in(answer: Mapping[str, Any]) -> str | None:
    """The location in what Google says about a bucket."""
    # A custom dual-region says "US", and lists the two regions separately.
    placement = answer.get("customPlacementConfig") or {}
    regions = placement.get("dataLocations") or []
    return joined(regions) or normalised(answer.get("location") or "") or None


def here() -> str | None:
    """The region where data should be: that of the prefix's bucket, else of this machine; None if unknown."""
    location = region_of(marin_prefix())
    if location is not None and is_region(location):
        return location
    # A bucket of a whole continent does not say where on it we are.
    return region_of_this_machine(current_cluster()) or location


def _ask_in_a_thread(bucket: str) -> str | None:
    """Ask on an event loop of its own: callers may be on any thread, including that of fsspec's loop."""
    # Imported here: planning imports this module, and needs this only when a step has gs:// paths.
    import asyncio

    answers: list[str | None] = []
    thread = threading.Thread(target=lambda: answers.append(asyncio.run(_ask_alone(bucket))), daemon=True)
    thread.start()
    thread.join()
    return answers[0] if answers else None


async def _ask_alone(bucket: str) -> str | None:
    import asyncio

    try:
        from gcsfs.core import GCSFileSystem

        filesystem = GCSFileSystem(asynchronous=True, skip_instance_cache=True)
        try:
            return await asyncio.wait_for(ask_location(filesystem, bucket), LOOKUP_TIMEOUT_SECONDS)
        finally:
            if filesystem._session is not None:
                await filesystem._session.close()
    except Exception as error:
        logger.debug("bucket %s cannot be asked where it is: %s", bucket, error)
        return None
