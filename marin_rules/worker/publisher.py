"""Makes a running step visible to others: its info at first, its log repeatedly, from a thread of its own.

Apart from the heartbeat, which must not wait for a long log on a slow link.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Publisher:
    """Publishes between `start` and `stop`. What it calls must handle trouble itself.

    `publish` gets a function that says whether to continue, to be called occasionally.
    """

    def __init__(
        self, *, first: Callable[[], None], publish: Callable[[Callable[[], bool]], None], interval: float
    ) -> None:
        self._first = first
        self._publish = publish
        self._interval = interval
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Nothing is started after this; waits for what is in progress."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        self._first()
        while not self._stopped.wait(self._interval):
            self._publish(lambda: not self._stopped.is_set())
