"""Several blocking calls at once, each in a thread that knows the caller's budget.

The threads end with the call: none is there to be lost in a fork. When one fails, or the caller is interrupted, the
others are asked to stop; those that take long should call `stop_if_asked` occasionally.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import ContextVar
from threading import Event

_stops: ContextVar[tuple[Event, ...]] = ContextVar("marin_rules_mirror_stops", default=())
"""Set when one of the calls around this one has failed."""


class AskedToStopError(Exception):
    """Another call failed, whose error is the one that is reported."""


def stop_if_asked() -> None:
    """Raise if the result of this call is no longer wanted."""
    if any(stop.is_set() for stop in _stops.get()):
        raise AskedToStopError("another copy of the same request failed")


def each[Item, Result](items: Iterable[Item], do: Callable[[Item], Result], *, at_once: int) -> list[Result]:
    """`do` for each item, in order. After an error nothing more is started, and the error is raised."""
    todo = list(items)
    if len(todo) < 2:
        return [do(item) for item in todo]
    stop = Event()

    def do_one(item: Item) -> Result:
        _stops.set((*_stops.get(), stop))
        return do(item)

    with ThreadPoolExecutor(min(len(todo), at_once), thread_name_prefix="mirror") as pool:
        # A copy of the context each: a context can be entered by one thread at a time.
        futures = [pool.submit(contextvars.copy_context().run, do_one, item) for item in todo]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]
