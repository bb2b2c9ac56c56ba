"""The guard of direct reads: `gs://` data of another region is charged to the budget, whoever reads it.

`install_guard()` replaces fsspec's `gs` and `gcs` with a subclass of gcsfs, so that pandas, datasets and plain
`fsspec.open` are guarded without knowing it. Only the name of the class is registered: gcsfs is imported when the first
`gs://` URL is used. If the region of the process is not known, nothing is charged.

Libraries that do not read through fsspec (pyarrow's own GcsFileSystem, gcloud, google-cloud-storage) are not guarded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

PROTOCOLS = ("gs", "gcs")
_CLASS = "marin_rules.storage.guarded_gcs.GuardedGCSFileSystem"

_MISSING = "gs:// needs gcsfs. Install it: pip install 'marin-rules[gcp]'."

_charged: ContextVar[bool] = ContextVar("marin_rules_read_is_charged", default=False)


def install_guard() -> None:
    """Guard all filesystems for `gs://` that are made from now on in this process."""
    from fsspec.registry import register_implementation, registry

    for protocol in PROTOCOLS:
        register_implementation(protocol, _CLASS, clobber=True, errtxt=_MISSING)
    if any(protocol in registry for protocol in PROTOCOLS):
        # gs:// was used before: fsspec looks there first, and gcsfs is already imported.
        from marin_rules.storage.guarded_gcs import GuardedGCSFileSystem

        for protocol in PROTOCOLS:
            register_implementation(protocol, GuardedGCSFileSystem, clobber=True)


def is_charged() -> bool:
    """Whether what is read now has been charged already."""
    return _charged.get()


@contextlib.contextmanager
def already_charged() -> Iterator[None]:
    """For reads inside the block that were charged by other means, or that should not be charged."""
    token = _charged.set(True)
    try:
        yield
    finally:
        _charged.reset(token)
