"""Retries for what a store did not answer: passing trouble must not cost a run, or a step of many hours."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

from marin_rules.storage.explain import UnansweredError

PATIENCE_SECONDS = 60.0
"""How long a store may fail to answer. Meanwhile the heartbeat continues, or fails independently."""

_PAUSE_SECONDS = (0.2, 5.0)

logger = logging.getLogger(__name__)


def patiently[Result](
    action: Callable[[], Result],
    *,
    say: Callable[[str], None] = logger.warning,
    sleep: Callable[[float], None] = time.sleep,
    seconds: float = PATIENCE_SECONDS,
) -> Result:
    """Call `action`, and again while the store gives no answer. The action must be repeatable."""
    give_up = time.monotonic() + seconds
    pause = _PAUSE_SECONDS[0]
    while True:
        try:
            return action()
        except UnansweredError as error:
            if time.monotonic() + pause > give_up:
                raise
            say(f"will try again: {error}")
        # Workers that a store turned away together must not come back together.
        sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 2, _PAUSE_SECONDS[1])


def persistently(
    action: Callable[[], None],
    *,
    is_in_vain: Callable[[], bool],
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Call `action`, and again after any refusal (no rights, no credentials, no space, no answer) until that is
    futile."""
    pause, told = _PAUSE_SECONDS[0], ""
    while True:
        try:
            return action()
        except OSError as error:
            if is_in_vain():
                raise
            if str(error) != told:
                told = str(error)
                say(f"will try again: {error}")
        sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 2, _PAUSE_SECONDS[1])
