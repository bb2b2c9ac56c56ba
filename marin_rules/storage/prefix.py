"""Where the data of steps live when nobody says otherwise."""

from __future__ import annotations

import os

PREFIX_VARIABLE = "MARIN_PREFIX"
DEFAULT_PREFIX = "/tmp/marin"


def marin_prefix() -> str:
    """The prefix of all output paths: `MARIN_PREFIX`, or a folder on the local disk."""
    return os.environ.get(PREFIX_VARIABLE) or DEFAULT_PREFIX
