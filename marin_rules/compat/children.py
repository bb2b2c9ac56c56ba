"""Marin's modules in the children of a process that serves them: spawned ones, and whatever `python` they start.

A finder lives in one process. Its children find, on their search path, packages of Marin's names in `stubs/`, whose
first import installs the finder there and lets it take over. A new `python` has the search path of PYTHONPATH,
one that `multiprocessing` spawns that of its parent.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

STUBS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stubs")

_VARIABLE = "PYTHONPATH"


def serve_children() -> None:
    """Let the children of this process find the stubs before a Marin that is installed."""
    folders = [folder for folder in os.environ.get(_VARIABLE, "").split(os.pathsep) if folder]
    if STUBS not in folders:
        os.environ[_VARIABLE] = os.pathsep.join([STUBS, *folders])
    if STUBS not in sys.path:
        sys.path.insert(0, STUBS)


def take_over(name: str) -> None:
    """Called by a stub while it is imported: Python then uses what is in `sys.modules` in its place."""
    from marin_rules.compat.finder import install

    install()
    import_module(name)
