"""Marin's modules by their own names: scripts that import `marin`, `fray` and `rigging` run here as they are.

`python -m marin_rules.compat script.py` runs one; `marin-rules migrate` rewrites its imports instead. The modules of
this room are loaded when they are needed: most runs have nothing to do with them.
"""

from __future__ import annotations

import sys

_FINDER = f"{__name__}.finder"


def install() -> None:
    """Serve Marin's modules in this process and its children."""
    from marin_rules.compat.finder import install

    install()


def is_installed() -> bool:
    """Whether Marin's modules are served in this process."""
    finder = sys.modules.get(_FINDER)
    return finder is not None and bool(finder.is_installed())
