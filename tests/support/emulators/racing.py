"""Many threads at once, for the tests that both stores must pass."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

RACERS = 16


def race[T](run: Callable[[int], T], racers: int = RACERS) -> list[T]:
    """What each racer returns, all of them let go at the same moment."""
    start = threading.Barrier(racers)

    def wait_and_run(racer: int) -> T:
        start.wait(30)
        return run(racer)

    with ThreadPoolExecutor(racers) as pool:
        return list(pool.map(wait_and_run, range(racers)))
