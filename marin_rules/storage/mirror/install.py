"""Make fsspec know `mirror://` in this process, by the name of the class: nothing is imported until it is used."""

from __future__ import annotations

_CLASS = "marin_rules.storage.mirror.filesystem.MirrorFileSystem"


def install_mirror() -> None:
    """Register `mirror://`. An installed package does so automatically, through its entry point `fsspec.specs`."""
    from fsspec.registry import register_implementation

    register_implementation("mirror", _CLASS, clobber=True)
