"""Waiting for what an emulated service does by itself."""

from __future__ import annotations

import time
from collections.abc import Callable

_DEADLINE_SECONDS = 30.0
_POLL_SECONDS = 0.01


def wait[Found](look: Callable[[], Found], is_it: Callable[[Found], bool]) -> Found:
    """What `look()` returns, once it is what is waited for."""
    give_up = time.monotonic() + _DEADLINE_SECONDS
    while not is_it(found := look()):
        assert time.monotonic() < give_up, f"did not come: {found}"
        time.sleep(_POLL_SECONDS)
    return found
