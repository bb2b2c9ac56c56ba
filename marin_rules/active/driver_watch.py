"""Waits for the end of a submitted driver, and passes on what it prints meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from marin_rules.active.clock import Clock, SystemClock
from marin_rules.active.drivers import ActiveDriver, look_at_drivers
from marin_rules.active.queues import LiveJobs, Queues
from marin_rules.active.step_logs import Log
from marin_rules.clusters.protocol import ClusterError
from marin_rules.state.driver_record import DriverRecord
from marin_rules.urls import is_url

_LOCAL_SECONDS = 0.2
_CLUSTER_SECONDS = 5.0
"""The pause between two queries about a driver: to this machine, and to a cluster, which has others to serve."""

_STORE_SECONDS = 2.0
"""The same for a store, which charges for each query."""

_JOB_LINES = 50

_ABSENT_SECONDS = 30.0
"""How long a job must be missing from the list before it is over: its cluster may be about to requeue it, and files
written by a node may become visible late."""


class DriverWatch:
    """Checks one driver repeatedly, no more often than its cluster tolerates."""

    def __init__(self, record: DriverRecord, queues: Queues, clock: Clock | None = None) -> None:
        self._record = record
        self._queues = queues
        self._clock = clock or SystemClock()
        self._asked_at: float | None = None
        self._absent_since: float | None = None
        self._last = ActiveDriver(record, record.holder(), record.end(), is_alive=True)

    def look(self) -> ActiveDriver:
        """Its state. Its own record of its end is looked for each time."""
        now = self._clock.monotonic()
        holder, end = self._record.holder(), self._record.end()
        is_job = holder is not None and holder.job is not None
        if end is not None:
            self._last = ActiveDriver(self._record, holder, end)
        elif not is_job or self._asked_at is None or now - self._asked_at >= _CLUSTER_SECONDS:
            self._asked_at = now
            answer = self._queues.live_jobs() if is_job else LiveJobs()
            (self._last,) = look_at_drivers([self._record], answer, self._clock.time())
        absent = self._last.end is None and not self._last.is_alive
        if not absent:
            self._absent_since = None
        elif self._absent_since is None:
            self._absent_since = now
        return self._last

    @property
    def has_ended(self) -> bool:
        """Whether the last check found it over, and for a while if only its absence says so."""
        if self._last.end is not None:
            return True
        if self._absent_since is None:
            return False
        patience = _ABSENT_SECONDS if self._last.holder is not None and self._last.holder.job is not None else 0.0
        return self._clock.monotonic() - self._absent_since >= patience


def wait_for_driver(
    record: DriverRecord, queues: Queues, show: Callable[[], None] = lambda: None, clock: Clock | None = None
) -> ActiveDriver:
    """Wait until a driver is over; returns how it ended. `show` is called again and again, the last time after that."""
    clock = clock or SystemClock()
    watch = DriverWatch(record, queues, clock)
    while True:
        driver = watch.look()  # Checked first, so that everything written until then is shown.
        show()
        if watch.has_ended:
            return driver
        clock.sleep(pause_for(record))


def pause_for(record: DriverRecord) -> float:
    """How long to wait until a driver is checked again."""
    return _STORE_SECONDS if is_url(record.log_path) else _LOCAL_SECONDS


def follow_driver(
    record: DriverRecord, queues: Queues, log: Log, write: Callable[[bytes], None], clock: Clock | None = None
) -> ActiveDriver:
    """The same, and pass its log on; of a driver that ended without any, what its job has printed instead."""

    def show() -> None:
        for piece in log.news():
            write(piece)

    driver = wait_for_driver(record, queues, show, clock)
    if not log.exists:
        write(printed_by_job(record, queues, _JOB_LINES))
    return driver


def printed_by_job(record: DriverRecord, queues: Queues, count: int) -> bytes:
    """The last lines printed by the job of a driver, if its cluster keeps them: why the driver did not start."""
    holder = record.holder()
    if holder is None or holder.cluster is None or holder.job is None:
        return b""
    try:
        lines = queues.last_lines((holder.cluster, holder.job), count)
    except ClusterError as error:
        lines = [str(error)]
    return "".join(f"{line}\n" for line in lines).encode()
