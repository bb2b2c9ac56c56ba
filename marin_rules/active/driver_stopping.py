"""Stops a submitted driver and all of its steps, wherever both are: no job of the run is left, and no lease is held.

The driver learns the reason before it is asked to end: only then does it know that a person wants the run to stop, and
that no machine was taken away (see `driver.supervisor`). What it could no longer finish is finished here, as for any
run.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable

from marin_rules.active.clock import Clock, SystemClock
from marin_rules.active.driver_watch import DriverWatch, pause_for
from marin_rules.active.drivers import ActiveDriver, look_at_drivers
from marin_rules.active.processes import LocalProcess
from marin_rules.active.queues import Queues
from marin_rules.active.settling import Stopped
from marin_rules.active.stopping import Stopper
from marin_rules.active.survey import look
from marin_rules.errors import MarinRulesError
from marin_rules.state.driver_record import STOPPED_CODE, DriverRecord

_END_SECONDS = 600.0
"""How long a driver may take to end: a cluster is as slow as its nodes."""


def stop_driver(
    record: DriverRecord, queues: Queues, say: Callable[[str], None], clock: Clock | None = None
) -> list[Stopped]:
    """Stop a driver; returns the outcome of the steps that were still active after its end."""
    clock = clock or SystemClock()
    answer = queues.live_jobs()
    (driver,) = look_at_drivers([record], answer, clock.time())
    if driver.trouble is not None:
        raise MarinRulesError(f"driver {record.id} cannot be stopped now: {driver.trouble}")
    if driver.end is not None:
        raise MarinRulesError(f"driver {record.id} has ended already: {driver.state}")
    cluster = None if driver.holder is None else driver.holder.cluster
    if cluster is not None and cluster in answer.silent:
        raise MarinRulesError(
            f"driver {record.id} is {driver.holder}, and {queues.title(cluster)} does not answer"
            f" ({answer.silent[cluster]}): try again later"
        )
    record.ask_to_stop()
    if driver.is_alive:
        _tell(driver, queues)
        say(f"asked driver {record.id} ({driver.holder}) to end, waiting for it")
        _wait(record, queues, clock)
    survey = look(queues, clock.time())
    stopped = Stopper(queues, say, clock=clock).stop_run(survey, record.id)
    if record.end() is None:
        record.write_end(STOPPED_CODE)
    return stopped


def _tell(driver: ActiveDriver, queues: Queues) -> None:
    record, holder = driver.record, driver.holder
    if holder is None:
        raise MarinRulesError(f"driver {record.id} is being submitted: try again in a moment")
    if holder.job is not None:
        if not queues.can_ask(str(holder.cluster)):
            raise MarinRulesError(
                f"driver {record.id} is {holder}, which cannot be cancelled from this machine; run `marin-rules jobs"
                f" stop {record.id}` where {holder.cluster} can be asked"
            )
        queues.cancel([(str(holder.cluster), holder.job)])
        return
    assert holder.owner is not None
    process = LocalProcess.find(holder.owner)
    if process is None:
        raise MarinRulesError(f"driver {record.id} is {holder}; run `marin-rules jobs stop {record.id}` there")
    with contextlib.closing(process):
        process.send(signal.SIGTERM)


def _wait(record: DriverRecord, queues: Queues, clock: Clock) -> None:
    watch = DriverWatch(record, queues, clock)
    give_up = clock.monotonic() + _END_SECONDS
    while watch.look().is_alive:
        if clock.monotonic() > give_up:
            raise MarinRulesError(f"driver {record.id} has not ended in {_END_SECONDS:.0f} s; stop it again later")
        clock.sleep(pause_for(record))
