"""Marin's modules under their own names: scripts that import `marin`, `fray` and `rigging` run here as they are.

`python -m marin_rules.compat script.py` runs one; `marin-rules migrate` rewrites its imports instead. The modules of
this room are loaded when they are needed: most runs do not use them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marin_rules.compat.finder import Original

_FINDER = f"{__name__}.finder"


def install() -> None:
    """Serve Marin's modules in this process and its children."""
    from marin_rules.compat.finder import install

    install()


def is_installed() -> bool:
    """Whether Marin's modules are served in this process."""
    finder = sys.modules.get(_FINDER)
    return finder is not None and bool(finder.is_installed())


def original_modules() -> Callable[[ModuleType], Original | None]:
    """Which of Marin's own modules is behind one of this process; see `finder.original_module`."""
    finder = sys.modules.get(_FINDER)
    return (lambda module: None) if finder is None else finder.original_module


def without_stubs(search_path: Sequence[str]) -> list[str]:
    """A search path for finding Marin's own modules."""
    children = sys.modules.get(f"{__name__}.children")
    return list(search_path) if children is None else [entry for entry in search_path if entry != children.STUBS]
