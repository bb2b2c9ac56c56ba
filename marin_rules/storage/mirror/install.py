"""Register `mirror://` with fsspec in this process, by the name of the class: nothing is imported until it is used.

Marin's own packages, which Levanter brings along, register their own filesystem for `mirror://` when they are imported,
replacing whatever is there, or failing if there is another. In a step they are imported after this, so registrations
for that name are ignored from here on: `mirror://` must mean the same whatever a step imports.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

_CLASS = "marin_rules.storage.mirror.filesystem.MirrorFileSystem"


def install_mirror() -> None:
    """Register `mirror://`, for good. An installed package registers it automatically, but others can replace that."""
    import fsspec

    module: Any = importlib.import_module("fsspec.registry")  # As an attribute of fsspec, `registry` is a mapping.
    register = getattr(module.register_implementation, "__wrapped__", module.register_implementation)
    register("mirror", _CLASS, clobber=True)
    if "mirror" in module.registry:  # A class of others', or ours, in use: it would win over any name.
        from marin_rules.storage.mirror.filesystem import MirrorFileSystem

        register("mirror", MirrorFileSystem, clobber=True)

    @functools.wraps(register)
    def register_others(name: str, cls: type | str, clobber: bool = False, errtxt: str | None = None) -> None:
        # fsspec itself registers the class when it has imported it by its name.
        if name != "mirror" or _name_of(cls) == _CLASS:
            register(name, cls, clobber, errtxt)

    module.register_implementation = fsspec.register_implementation = register_others


def _name_of(cls: type | str) -> str:
    return cls if isinstance(cls, str) else f"{cls.__module__}.{cls.__qualname__}"
