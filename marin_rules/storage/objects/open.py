"""The object store of a URL. Clients are made once a process and thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from marin_rules.storage.objects.store import ObjectStore
from marin_rules.urls import split_url

_local = threading.local()
"""The clients of each thread, kept for their connections."""


def open_objects(url: str) -> ObjectStore:
    """The store that holds `url`; `StorageError` when its client cannot be made."""
    scheme = split_url(url)[0]
    # A forked child must not write into the connections of its parent, nor a thread into those of another one.
    if getattr(_local, "process", None) != os.getpid():
        _local.process, _local.stores = os.getpid(), {}
    stores: dict[str, ObjectStore] = _local.stores
    if scheme not in stores:
        stores[scheme] = _MAKERS.get(scheme, _advisory)(url)
    return stores[scheme]


def _gcs(url: str) -> ObjectStore:
    from marin_rules.storage.objects.gcs import GcsObjects

    return GcsObjects(url)


def _s3(url: str) -> ObjectStore:
    from marin_rules.storage.objects.s3 import S3Objects

    return S3Objects(url)


def _advisory(url: str) -> ObjectStore:
    from marin_rules.storage.objects.advisory import AdvisoryObjects

    return AdvisoryObjects(url)


_MAKERS: dict[str, Callable[[str], ObjectStore]] = {"gs": _gcs, "gcs": _gcs, "s3": _s3}
