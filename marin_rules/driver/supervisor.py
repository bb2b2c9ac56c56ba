"""`python -m marin_rules.driver.supervisor FOLDER`: a submitted driver, in its job or process.

It starts the engine with the plan that was made at submission, waits for it, and records how the run ended. It alone
handles signals, and decides what they mean for the jobs of the run's steps (`order_for`):

- **A person ends the run** (`marin-rules jobs stop`, or the cluster's own command): the engine is told to stop, which
  cancels its jobs. `jobs stop` leaves a note in the driver's folder first; without one, the cluster is asked why it is
  ending the job.
- **The cluster takes the machine away** (preemption, requeue, a node set down) or the time limit comes: the jobs of
  steps have machines of their own and continue. The engine is told to leave them, and the driver, started again in the
  same job, finds them by their tags. At the time limit no cluster restarts it automatically: the driver requests it.
- **The reason is unknown** (the cluster does not answer): the jobs are left. Their results are used whoever waits for
  them, and they can be cancelled at any time; what was cancelled by mistake is lost.

On a machine outside any cluster, nothing restarts a driver: there every signal comes from a person.

An engine that is killed (by the kernel, for lack of memory) is restarted, a few times.

A driver on a machine that does not see its user's folder begins in `supervisor_elsewhere`, and continues here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from enum import Enum

from marin_rules.clusters.allocation import Allocation, EndCause, current_allocation
from marin_rules.clusters.protocol import ClusterError
from marin_rules.driver import supervision
from marin_rules.driver.submission import checksum
from marin_rules.parentage import end_with_parent
from marin_rules.state.driver_record import STOPPED_CODE, DriverRecord, Holder
from marin_rules.storage.files import modified_time
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.patience import persistently
from marin_rules.units import clock_now

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_WATCHED = frozenset({*_SIGNALS, signal.SIGCHLD})

_MOST_RESTARTS = 3
_PAUSE_SECONDS = 2.0
"""The pause before a dead engine is restarted: a signal that killed it may be on its way to us, too."""

_PUBLISH_SECONDS = 3.0
"""The pause between two publications of a driver's output: a store accepts one write per object and second."""

LAST_WORDS_SECONDS = 20.0
"""How long the end of a log is worth waiting for, if the store does not answer."""

_END_SECONDS = 900.0
"""How long a driver whose run has ended tries to record that: as long as a worker whose step is done."""


class Order(Enum):
    """What a signal to the driver means."""

    STOP = "stop"
    LEAVE = "leave"
    """The driver's job has been requeued; those of steps continue."""

    START_AGAIN = "start again"
    """The same, but the driver must requeue its job itself."""


def order_for(number: int, *, is_asked_to_stop: bool, why: Callable[[], EndCause] | None) -> Order:
    """What to do about a signal. `why` asks the cluster why it is ending the driver's job; None outside of jobs."""
    if is_asked_to_stop or why is None or number == signal.SIGINT:
        return Order.STOP
    if number == signal.SIGUSR1:  # The warning before the time limit, which was asked for.
        return Order.START_AGAIN
    return _ORDERS[why()]


_ORDERS = {
    EndCause.CANCELLED: Order.STOP,
    EndCause.STARTS_AGAIN: Order.LEAVE,
    EndCause.TIME_LIMIT: Order.START_AGAIN,
    # A warning before the machine is taken away: ending now would end the job for good.
    EndCause.SIGNAL: Order.START_AGAIN,
    EndCause.UNKNOWN: Order.LEAVE,
}


class Supervisor:
    """For one driver, from one start to its end or to the next start."""

    def __init__(
        self, record: DriverRecord, allocation: Allocation | None, publish: Callable[[float], None] | None = None
    ) -> None:
        """`publish`: called repeatedly, and before the end is recorded, with the number of seconds it may take."""
        self._record = record
        self._allocation = allocation
        self._publish = publish
        self._order: Order | None = None
        self._restarts = 0
        self._engine = self._start()

    def run(self) -> int:
        """Until the engine has ended; returns the exit code of the run."""
        while True:
            number = self._next_signal()
            if number != signal.SIGCHLD:
                self._signalled(number)
            elif (code := self._engine.poll()) is not None:
                self._hear_late_signals(code)
                if code >= 0 or self._order is not None or self._restarts == _MOST_RESTARTS:
                    return self._end(code)
                self._restarts += 1
                say(f"the engine was killed by signal {-code}; again ({self._restarts} of at most {_MOST_RESTARTS})")
                self._engine = self._start()

    def _next_signal(self) -> int:
        if self._publish is None:
            return signal.sigwait(_WATCHED)
        while (found := signal.sigtimedwait(_WATCHED, _PUBLISH_SECONDS)) is None:
            self._publish(0.0)
        return found.si_signo

    def _start(self) -> subprocess.Popen[bytes]:
        supervisor = os.getpid()

        def in_child() -> None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
            end_with_parent(supervisor)

        command, variables = self._command()
        return subprocess.Popen(command, env={**os.environ, **variables}, preexec_fn=in_child)

    def _command(self) -> tuple[list[str], dict[str, str]]:
        """What is started, and its further variables."""
        record = self._record
        # A run that has begun knows what is forced: by patterns, by flags and as a consequence.
        plan = record.plan_path if modified_time(record.plan_path) is not None else record.own_plan_path
        module, *words = record.words
        cores = None if self._allocation is None else self._allocation.cpus or 1
        command = [sys.executable, "-P", "-m", module]
        variables = {supervision.VARIABLE: str(os.getpid())}
        if record.takes_plan_by_flag:
            command += ["--plan", plan, "--digest", record.digest]
            command += [] if cores is None else ["--cores", str(cores)]
        else:
            variables |= {supervision.PLAN_VARIABLE: plan, supervision.DIGEST_VARIABLE: record.digest}
            # First, so that the user's own flags win: a job has fewer cores than its machine.
            command += [] if cores is None else ["--cores", str(cores), "--local-cores", str(cores)]
        return [*command, *words], variables

    def _hear_late_signals(self, code: int) -> None:
        """A signal to all processes of a job may have killed the engine before it arrived here."""
        seconds = _PAUSE_SECONDS if code < 0 and self._order is None else 0.0
        while (found := signal.sigtimedwait(_SIGNALS, seconds)) is not None:
            self._signalled(found.si_signo)

    def _signalled(self, number: int) -> None:
        if self._order is Order.STOP:
            return
        why = None if self._allocation is None else self._allocation.why_told_to_end
        order = order_for(number, is_asked_to_stop=self._is_asked_to_stop(), why=why)
        if order is Order.STOP:
            say("stopping the run and its jobs")
        elif self._order is not None:
            return  # It is about to be restarted anyway.
        elif order is Order.START_AGAIN and not self._has_itself_queued_again():
            return
        elif order is Order.LEAVE and self._allocation is not None and not self._allocation.may_start_again:
            say("this driver is losing its machine; jobs of steps continue. Submit the run again, and it takes them up")
        else:
            say("this driver will be restarted; jobs of steps continue")
        self._order = order
        self._engine.send_signal(supervision.STOP if order is Order.STOP else supervision.LEAVE)

    def _is_asked_to_stop(self) -> bool:
        with contextlib.suppress(OSError):  # A store that does not answer: the cluster may.
            return self._record.is_asked_to_stop
        return False

    def _has_itself_queued_again(self) -> bool:
        assert self._allocation is not None
        try:
            self._allocation.start_again()
        except ClusterError as error:
            say(f"this driver's time is running out, and its job cannot be queued again: {error}")
            return False
        return True

    def _end(self, code: int) -> int:
        """The end of the run, unless it continues at the next start."""
        if self._publish is not None:
            self._publish(LAST_WORDS_SECONDS)
        exit_code = 128 - code if code < 0 else code
        if code < 0 and self._order is Order.STOP:
            exit_code = STOPPED_CODE  # Our signal, perhaps before it could handle it: not a death of its own.
        if self._order in (Order.LEAVE, Order.START_AGAIN) and code != 0:
            return exit_code
        self._write_end(exit_code)
        return exit_code

    def _write_end(self, exit_code: int) -> None:
        """This tells those who wait for the run how it ended: a full disk must not turn it into one that is gone."""
        give_up = time.monotonic() + _END_SECONDS
        persistently(
            lambda: self._record.write_end(exit_code),
            is_in_vain=lambda: time.monotonic() > give_up,
            say=lambda text: say(
                f"the run has ended (exit code {exit_code}), which cannot be recorded yet, and {text}"
            ),
        )


def main() -> int:
    record = DriverRecord.read(sys.argv[1])
    if record is None:
        print(f"marin-rules: there is no driver in {sys.argv[1]}: its submission was given up", file=sys.stderr)
        return 1
    return supervise(record, lambda allocation: _drive(record, allocation))


def supervise(record: DriverRecord, drive: Callable[[Allocation | None], int]) -> int:
    """Call `drive` if this job or process is the driver and the run should continue; returns an exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # What is ignored is not waited for, either.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    allocation = current_allocation() if record.is_for_job else None
    ours = Holder(owner=Owner.current()) if allocation is None else Holder(allocation.cluster, allocation.job_id)
    holder = record.claim(ours)
    if not holder.is_same(ours):
        say(f"driver {record.id} is {holder}; this one, {ours}, ends")
        return 0
    if (end := record.end()) is not None:
        return end.exit_code
    if record.is_asked_to_stop:
        record.write_end(STOPPED_CODE)
        return STOPPED_CODE
    return drive(allocation)


def _drive(record: DriverRecord, allocation: Allocation | None) -> int:
    os.chdir(record.working_directory)
    changed = [path for path, known in record.checksums.items() if checksum(path) != known]
    if changed:
        say(f"{', '.join(changed)} was edited after the submission, and is read where it is; submit the run again")
        record.write_end(1)
        return 1
    say_begin(record, allocation)
    return Supervisor(record, allocation).run()


def say_begin(record: DriverRecord, allocation: Allocation | None) -> None:
    times = "" if allocation is None or not allocation.restarts else f", started again ({allocation.restarts})"
    say(f"driver {record.id} on {os.uname().nodename}{times}")


def say(text: str) -> None:
    with contextlib.suppress(OSError):  # A full disk must not end the run.
        print(f"{clock_now()} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
