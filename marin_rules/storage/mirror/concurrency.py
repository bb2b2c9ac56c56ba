"""Several blocking calls at once, each in a thread that knows the caller's budget.

The threads end with the call: none is there to be lost in a fork.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor


def each[Item, Result](items: Iterable[Item], do: Callable[[Item], Result], *, at_once: int) -> list[Result]:
    """`do` for each item, in their order. After an error nothing more is begun, and the error is raised."""
    todo = list(items)
    if len(todo) < 2:
        return [do(item) for item in todo]
    with ThreadPoolExecutor(min(len(todo), at_once), thread_name_prefix="mirror") as pool:
        # A copy of the context each: a context can be entered by one thread at a time.
        futures = [pool.submit(contextvars.copy_context().run, do, item) for item in todo]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise
