"""The places where mirrored data can be: the prefix (home), and the buckets of the cluster's other regions (sources).

Sources come in a fixed order, the nearest first: same region, same continent, then as in the cluster file.

A place keeps no client. fsspec gives the same one again, but another one after a fork, where the old one's connections
belong to the parent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from marin_rules.geography import common, continent
from marin_rules.settings.data_buckets import current_cluster
from marin_rules.storage.explain import missing_client
from marin_rules.storage.files import local_path
from marin_rules.storage.guard import PROTOCOLS, install_guard
from marin_rules.storage.prefix import marin_prefix, region_of_this_machine
from marin_rules.storage.regions import region_of
from marin_rules.urls import is_url, split_url

_kept: dict[int, Any] = {}
"""All clients ever used. In a forked process fsspec forgets those of the parent; if they were collected, they would
close their connections and remove them from the event loop that parent and child still share: the parent would wait
forever."""


@dataclass(frozen=True)
class Place:
    """A folder or bucket below which mirrored paths are looked for."""

    root: str
    """A URL or an absolute local path, without a slash at the end."""

    given_region: str | None = None
    """As the cluster file says; None: look for it when it is needed."""

    @property
    def scheme(self) -> str:
        """`gs`, `s3`, ...; empty for a local disk."""
        return split_url(self.root)[0]

    def region(self) -> str | None:
        """Where the data is, None if unknown. May ask Google, once per process."""
        if self.given_region is not None:
            return self.given_region
        if self.scheme:
            return region_of(self.root)
        # Not with a cluster: a machine outside Google would wait for a server that does not exist.
        return region_of_this_machine(None)

    def url(self, path: str) -> str:
        """The full name of `path` in this place."""
        return f"{self.root}/{path}" if path else self.root

    def filesystem(self) -> Any:
        """fsspec's filesystem. It keeps no listings: other processes copy and write here, too."""
        from fsspec.core import url_to_fs
        from fsspec.implementations.local import LocalFileSystem

        if not self.scheme:
            return LocalFileSystem(auto_mkdir=True)
        if self.scheme in PROTOCOLS:
            install_guard()  # For what it sends: the mirror's own reads are charged by the mirror.
        try:
            filesystem = url_to_fs(self.root, use_listings_cache=False)[0]
            _kept[id(filesystem)] = filesystem
            return filesystem
        except (ImportError, ValueError) as error:
            raise missing_client(self.root, error) from error

    def key(self, path: str) -> str:
        """What the filesystem calls `path`."""
        root = _root_key(self)
        return f"{root}/{path}" if path else root

    def relative(self, name: str) -> str:
        """The path of what the filesystem calls `name`."""
        return name.rstrip("/")[len(self.key("")) :].lstrip("/")


@cache
def _root_key(place: Place) -> str:
    # Asked for each object of a listing, and only a name: it may be kept, also over a fork.
    return str(place.filesystem()._strip_protocol(place.root)).rstrip("/")


def home() -> Place:
    """The prefix: where reads look first, where copies go, and the only place that is ever written."""
    prefix = marin_prefix()
    if not is_url(prefix):
        return Place(os.path.abspath(local_path(prefix)))
    scheme, bucket, _ = split_url(prefix)
    cluster = current_cluster()
    known = cluster.location_of(bucket) if cluster is not None and cluster.scheme == scheme else None
    return Place(prefix.rstrip("/"), known)


def sources() -> list[Place]:
    """The other regions' buckets, the nearest first."""
    here = home()
    return sorted(_sources_of(here), key=lambda place: _distance(place.region(), here.region()))


def all_roots() -> list[str]:
    """The beginnings of full paths whose mirrored paths are known. Makes no requests."""
    here = home()
    return [here.root, *(place.root for place in _sources_of(here))]


def _sources_of(here: Place) -> list[Place]:
    cluster = current_cluster()
    if cluster is None:
        return []
    places: dict[str, Place] = {}
    for region, bucket in cluster.region_buckets.items():
        root = f"{cluster.scheme}://{bucket}"
        if root != here.root:
            places.setdefault(root, Place(root, cluster.location_of(bucket) or region))
    return list(places.values())


def is_free(source: Place, target: Place) -> bool:
    """Whether data moves between the two without leaving its region, as far as is known."""
    origin, destination = source.region(), target.region()
    return origin is not None and destination is not None and common(origin, destination) is not None


def _distance(region: str | None, here: str | None) -> int:
    if region is None or here is None:
        return 2
    if common(region, here) is not None:
        return 0
    return 1 if continent(region) == continent(here) else 2
