"""Files and filesystems of any URL through fsspec, with the region guard and `mirror://` in every process.

Inside a step plain `fsspec.open` does the same; these are for scripts, and are called as Marin's are.
"""

from __future__ import annotations

from typing import Any

from marin_rules.storage.guard import install_guard
from marin_rules.storage.mirror.install import install_mirror


def open_url(url: str, mode: str = "rb", **options: Any) -> Any:
    """A file at a path or URL, to be used in a `with` block; `options` are those of `fsspec.open`."""
    import fsspec

    _prepare()
    return fsspec.open(url, mode, **options)


def url_to_fs(url: str, **options: Any) -> tuple[Any, str]:
    """The filesystem of a path or URL, and what it calls it; `options` are those of the filesystem."""
    from fsspec.core import url_to_fs

    _prepare()
    filesystem, path = url_to_fs(url, **options)
    return filesystem, str(path)


def _prepare() -> None:
    install_guard()
    install_mirror()
