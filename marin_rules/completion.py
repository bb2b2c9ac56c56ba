"""What a step says of its own output: that it is complete.

A step that was asked to stop and then returned has most likely returned early: a training loop that handles SIGTERM
saves a checkpoint and leaves. Its attempt never counts as success, unless the step declares its output complete.
"""

from __future__ import annotations

import os

_declared_by: int | None = None
"""A global: a step's code declares completion by a plain call, without arguments."""


def declare_complete() -> None:
    """Declare, from inside a step, that its output is complete whatever signals have arrived.

    Only a step that handles stop signals itself needs this: call it once the last byte is written, then return. On
    several machines every rank calls it.
    """
    global _declared_by
    _declared_by = os.getpid()


def is_declared_complete() -> bool:
    """Whether this very process has declared the output complete; a declaration by a forked copy is ignored."""
    return _declared_by == os.getpid()
