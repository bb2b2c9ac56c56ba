"""The worker: runs one step of a frozen plan, or one task of an array step, under its lease.

It takes the lease, and the GPUs that the step asks for (or waits for them), writes RUNNING, lets the step's
code run in a process of its own, passes the output on while the heartbeat refreshes the lease, and writes the final
state last and atomically, only while the lease is still its own. A worker that lost its lease ends the step and writes
nothing. Whatever kills it, the next worker finds either finished work or work to do again.

What it reads and writes is in its books (see `books`); `main` makes a worker from a command line.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from marin_rules.clusters.allocation import own_allocation
from marin_rules.clusters.prices import price_fields
from marin_rules.errors import MarinRulesError
from marin_rules.plans.conda import active_prefix, describe_environment, search_path
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.process import ThisProcess
from marin_rules.software.manifest import read_manifest
from marin_rules.state.failures import PreviousTaskFailedError
from marin_rules.state.status import Status
from marin_rules.state.step_log import OutputStream, StepLog, Terminal, attempt_line
from marin_rules.state.task_records import TaskPlace
from marin_rules.storage.leases.heartbeat import Heartbeat
from marin_rules.storage.leases.lease import LeaseLostError, LeaseRemovedError
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.patience import PATIENCE_SECONDS, patiently, persistently
from marin_rules.units import timestamp
from marin_rules.worker.attempt_facts import attempt_facts
from marin_rules.worker.conclusion import Conclusion, conclude
from marin_rules.worker.ending import JOB_STOP_GRACE_SECONDS, STOP_GRACE_SECONDS, Ending, tell_seconds
from marin_rules.worker.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_HELD, EXIT_LEASE_LOST
from marin_rules.worker.gpu_slots import GpuSlots
from marin_rules.worker.on_disk import brought_to_disk, said_if_slow
from marin_rules.worker.publisher import Publisher
from marin_rules.worker.step_books import StepBooks
from marin_rules.worker.step_process import Pool, Script, StepProcess
from marin_rules.worker.take_up import HeldError, TakeUp
from marin_rules.worker.task_books import TaskBooks

_PUBLICATIONS_IN_A_LIFETIME = 3

_LAST_LOG_SECONDS = 600.0
"""How long a step that has ended waits until an object store has all of its log."""

_SAME_SIGNAL_SECONDS = 1.0
"""How much later than its step a worker may receive a signal that was meant for both."""

_TERMINAL_SECONDS = 0.2
_TERMINAL_END_SECONDS = 2.0
"""How often output is offered to a terminal that does not accept it, and how long at the end."""

_FINISHED_LIFETIMES = 10
"""For how many lifetimes a worker whose step is done tries to say so, though it cannot refresh its lease: nothing
runs any more that others could be in the way of, and a commit compares the lease."""


_POOL_SECONDS = 3.0
"""How much longer a pool of tasks has to end than each of them: to record their outcomes."""


@dataclass(frozen=True)
class TaskOrder:
    """One task of an array step, for a worker."""

    task: int
    round: int
    label: str
    """What precedes each line that it prints."""

    waits: bool = True
    """Whether it waits for another worker that has the task."""

    is_over: Callable[[], bool] = lambda: False
    """Whether the round is obsolete."""


class Stopped(Exception):
    """A signal asked this worker to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Worker:
    """One step or one task, from the lease to the final state."""

    def __init__(
        self,
        plan: FrozenPlan,
        step: FrozenStep,
        *,
        task: TaskOrder | None = None,
        script: Script | None = None,
        log_link: str = "",
        client: int | None = None,
        process: StepProcess | None = None,
        cores: int | None = None,
    ) -> None:
        """`task`: do only this one of an array step. `cores`: what all tasks of an array step share."""
        self.plan = plan
        self.step = step
        self.owner = Owner.current()
        self.process = process or StepProcess(plan)
        self._task = task
        self._script = script
        self._cores = cores
        self.started = time.time()
        """When the step began: its seconds count from then on, and not while it waited for its lease."""

        self._stdout, self._stderr = Terminal(1), Terminal(2)
        self._log_link = log_link
        self._client = client
        self._stop_signal = 0
        self._has_ended = False
        self._writing_info = threading.Lock()
        self._conda_prefix: str | None = None
        self._wakeup, self._wakeup_write = self._catch_signals()
        is_pool = step.tasks is not None and task is None
        self.gpus = GpuSlots(0 if is_pool else _gpus_to_share(step), step.name)
        self.books: StepBooks | TaskBooks = self._open_books()
        self.lease = self.books.lease
        waits = task is None or task.waits
        self.take_up = TakeUp(self.books, self.gpus, say=self._say, sleep=self._sleep, waits=waits)

    def _open_books(self) -> StepBooks | TaskBooks:
        def in_patience(action: Callable[[], Any]) -> Any:
            return patiently(action, say=self._say, sleep=self._sleep)  # A signal to stop ends the wait at once.

        if self._task is None:
            in_job = own_allocation() is not None
            return StepBooks(self.plan, self.step, self.owner, in_job=in_job, patiently=in_patience)
        place = TaskPlace(self.step.output_path, self._task.round, self._task.task)
        return TaskBooks(
            self.plan,
            self.step,
            place,
            self.owner,
            label=self._task.label,
            patiently=in_patience,
            is_over=self._task.is_over,
        )

    def run(self) -> int:
        try:
            self._check_conda()
            if not self.take_up.acquire():
                return EXIT_DONE
            self.started = time.time()
            try:
                return self._run_leased()
            finally:
                self.process.kill()  # Nobody else may have the step before this one is over.
                self._tell_what_is_left()
                self.take_up.release()
        except Stopped as stopped:
            self._say(f"stopped by {stopped} before it started")
            return 128 + stopped.number
        except HeldError:
            return EXIT_HELD
        except LeaseLostError as lost:
            if isinstance(lost, LeaseRemovedError) and self._was_emptied():
                message = _emptied(self.step)
                self._say(f"FAILED: {message}")
                self._record(message)
                return EXIT_FAILED
            self._say(f"lost its lease and was ended: {lost}")
            return EXIT_LEASE_LOST
        except PreviousTaskFailedError as refusal:
            self._say(str(refusal))
            self._record(str(refusal), previous=True)
            return EXIT_FAILED
        except (MarinRulesError, OSError) as error:
            self._say(f"error: {error}")
            self._record(str(error))
            return EXIT_FAILED
        finally:
            self.process.kill()
            self.process.close()
            self.gpus.release()
            self._stdout.flush(_TERMINAL_END_SECONDS)
            self._stderr.flush(_TERMINAL_END_SECONDS)
            signal.set_wakeup_fd(-1)
            os.close(self._wakeup)
            os.close(self._wakeup_write)

    # -- before the step -------------------------------------------------------------------------------------

    def _check_conda(self) -> None:
        """A step that has a conda environment runs in that one, or not at all."""
        environment = self.plan.conda.get(self.step.index)
        if environment is not None:
            self._conda_prefix = active_prefix(environment, runs_python=self._script is None)

    def _variables(self) -> dict[str, str]:
        """What the step's process has in its environment in addition to this one's."""
        path = {} if self._conda_prefix is None else {"PATH": search_path(self._conda_prefix)}
        return {**self.gpus.variables, **path}

    def _tell_what_is_left(self) -> None:
        for process in self.process.left.values():
            self._say(f"left running: {process}, which only that user or an administrator can end")

    def _run_leased(self) -> int:
        log = StepLog(self.books.log_path)
        try:
            log.link_from(self._log_link)
            facts = self._facts()
            self.books.begin(facts)
            log.write(attempt_line(timestamp(self.started), facts["attempt"], self.owner.worker_id))
            if self.take_up.taken_from:
                log.write(f"[{self.books.label}] {self.take_up.taken_from}\n".encode())
            heartbeat = Heartbeat(self.lease, wake=self._wake, say=lambda text: self._say(text, log))
            publisher = Publisher(
                first=self._note_start,
                publish=lambda go_on: self._show_progress(log, go_on),
                interval=self.lease.lifetime / _PUBLICATIONS_IN_A_LIFETIME,
            )
            try:
                conclusion = self._watch(log, heartbeat, publisher)
                publisher.stop()
                return self._finish(facts, conclusion, log, heartbeat)
            finally:
                self.process.kill()  # Before anything that may have to wait for the store.
                publisher.stop()
                heartbeat.stop()
        finally:
            log.close()

    def _show_progress(self, log: StepLog, go_on: Callable[[], bool]) -> None:
        """Publish the log so far, while the step is ours. Trouble with that is no reason for the step to fail."""

        def check() -> bool:
            self.lease.verify()
            return go_on()

        try:
            if not log.flush(check) and self._has_ended:
                self._say(f"the end of {log.path} could not be published in {_LAST_LOG_SECONDS:.0f} s and is lost")
        except (OSError, LeaseLostError) as error:
            self._say(f"could not publish {log.path}: {error}")

    def _facts(self) -> dict[str, Any]:
        """What is known about this attempt, as recorded."""
        facts = attempt_facts(self.plan.run, self.owner, self.books.attempts + 1, self.started)
        job = own_allocation()
        if job is not None:
            facts[job.cluster] = {**job.to_fields(), **price_fields(os.environ)}
        if self._conda_prefix is not None:
            environment = self.plan.conda[self.step.index]
            facts["environment"] = describe_environment(environment, self._conda_prefix)
        elif self.step.software is not None:
            manifest = read_manifest(sys.prefix)
            facts["environment"] = {"path": sys.prefix, **(manifest.to_fields() if manifest else {})}
        if self.gpus.wanted:
            facts["gpus"] = list(self.gpus.names)
        return facts

    # -- while the step runs ---------------------------------------------------------------------------------

    def _watch(self, log: StepLog, heartbeat: Heartbeat, publisher: Publisher) -> Conclusion:
        """Pass output on until the step's process ends, or until the lease is lost."""
        process = self.process
        streams = {
            process.stdout: OutputStream(self.books.label, self._stdout, log),
            process.stderr: OutputStream(self.books.label, self._stderr, log),
        }
        with selectors.DefaultSelector() as selector:
            for descriptor in (*streams, process.result, self._wakeup):
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            if self._client is not None:
                selector.register(self._client, selectors.EVENT_READ)
            process.go(self.step, self._script, self._variables(), self._this_process(), self._pool())
            heartbeat.start()
            publisher.start()
            grace_seconds = STOP_GRACE_SECONDS if own_allocation() is None else JOB_STOP_GRACE_SECONDS
            grace_seconds += _POOL_SECONDS if process.is_pool else 0.0
            ending = Ending(process, lambda text: self._say(text, log), grace_seconds)
            is_halted = False
            while not process.ended():
                due = min(time.monotonic() + heartbeat.look_again, ending.due)
                if self._stdout.is_behind or self._stderr.is_behind:
                    due = min(due, time.monotonic() + _TERMINAL_SECONDS)
                    self._stdout.flush()
                    self._stderr.flush()
                for key, _ in selector.select(max(0.0, due - time.monotonic())):
                    if key.fd == self._wakeup:
                        os.read(self._wakeup, 4096)
                    elif key.fd == self._client:
                        self._client_is_gone()
                        selector.unregister(key.fd)
                    elif key.fd == process.result:
                        if not process.read_report():
                            selector.unregister(key.fd)
                    elif self._pass_on(key.fd, streams) == b"":
                        selector.unregister(key.fd)
                ending.watch(self._stop_signal)
                if heartbeat.in_doubt() != is_halted:
                    is_halted = not is_halted
                    process.stop(signal.SIGSTOP if is_halted else signal.SIGCONT)
            conclusion = ending.conclude()
            for descriptor in streams:
                while self._pass_on(descriptor, streams):
                    pass
        for stream in streams.values():
            stream.end()
        return conclusion

    def _this_process(self) -> ThisProcess:
        """What the step's process is told about itself."""
        if self._task is None or self.step.tasks is None:
            return ThisProcess()
        return ThisProcess(task=self._task.task, tasks=self.step.tasks)

    def _pool(self) -> Pool | None:
        """How the tasks of an array step are run by its process; None for a step of one piece, or for one task."""
        if not isinstance(self.books, StepBooks) or self.step.tasks is None:
            return None
        cores = self._cores or os.cpu_count() or 1
        cores_of_a_task = 1 if self.step.machines is None else self.step.machines.cpu
        return Pool(self.books.round, at_once=max(1, cores // cores_of_a_task))

    def _note_start(self) -> None:
        """Record what is known so far, while the step's code is already running. At the end everything is written
        again."""
        with self._writing_info:
            if self._has_ended:
                return
            try:
                self.books.note_start()
            except (OSError, LeaseLostError) as error:
                self._say(f"could not record yet that it is running: {error}")

    @staticmethod
    def _pass_on(descriptor: int, streams: dict[int, OutputStream]) -> bytes | None:
        """Read once and pass it on; nothing (b"") at the end of the stream, None if there is nothing right now."""
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return None
        streams[descriptor].feed(data)
        return data

    # -- after the step --------------------------------------------------------------------------------------

    def _finish(self, facts: dict[str, Any], conclusion: Conclusion, log: StepLog, heartbeat: Heartbeat) -> int:
        if conclusion.status is Status.FAILED and self.process.was_terminated:
            self._await_signal(_SAME_SIGNAL_SECONDS)
            conclusion = conclude(self.process.returned, self.process.exit_status or 0, stop_signal=self._stop_signal)
        if conclusion.status is Status.SUCCESS:
            with said_if_slow(lambda text: self._say(text, log), tell_seconds(self.process.returned)):
                outcome = brought_to_disk(conclusion.outcome, self.step.output_path)
            status = Status.SUCCESS if outcome.error is None else Status.FAILED
            conclusion = replace(conclusion, status=status, outcome=outcome)
        status, outcome = conclusion.status, conclusion.outcome
        finished = time.time()
        facts |= {"finished": timestamp(finished), "seconds": round(finished - self.started, 3)}
        job = own_allocation()
        if job is not None and outcome.machines:
            facts[job.cluster] = {**facts.get(job.cluster, {}), **outcome.machines}
        if outcome.error is not None:
            facts["error"] = outcome.error
        if outcome.warning is not None:
            self._say(f"warning: {outcome.warning}", log)
        overwrite = self._overwrite_finished(heartbeat) if status is Status.SUCCESS else self._overwrite
        with self._writing_info:
            self._has_ended = True
            self.books.write_down(conclusion, overwrite)
        log.write(f"--- {facts['finished']} {status} after {facts['seconds']} s\n".encode())
        give_up = time.monotonic() + _LAST_LOG_SECONDS
        self._show_progress(log, lambda: time.monotonic() < give_up)
        self.books.close(conclusion, overwrite)
        if status is Status.SUCCESS:
            return EXIT_DONE
        self._say(f"{status}: {outcome.error}; log: {log.path}")
        if status is Status.CANCELLED:
            return 128 + conclusion.stopped_by
        self._record(outcome.error or "", outcome.exception)
        return EXIT_FAILED

    def _overwrite(self, path: str, data: bytes, *, durable: bool = True) -> None:
        patiently(lambda: self.lease.overwrite(path, data, durable=durable), say=self._say)

    def _overwrite_finished(self, heartbeat: Heartbeat) -> Callable[..., None]:
        """As `_overwrite`, for a step that is done: no refusal undoes finished work while its lease is alive."""

        def overwrite(path: str, data: bytes, *, durable: bool = True) -> None:
            give_up = time.monotonic() + PATIENCE_SECONDS

            def is_in_vain() -> bool:
                # Stopping the run takes no longer than with any other store that does not answer.
                is_unwanted = bool(self._stop_signal) and time.monotonic() > give_up
                return is_unwanted or heartbeat.silence >= _FINISHED_LIFETIMES

            persistently(
                lambda: self.lease.overwrite(path, data, durable=durable),
                is_in_vain=is_in_vain,
                say=lambda text: self._say(f"is finished, but cannot record that yet, and {text}"),
            )

        return overwrite

    def _record(self, message: str, exception: str | None = None, *, previous: bool = False) -> None:
        try:
            self.books.tell_driver(message, exception, previous=previous)
        except OSError as error:
            self._say(f"could not tell the driver why it failed: {error}")

    def _say(self, text: str, log: StepLog | None = None) -> None:
        line = f"[{self.books.label}] {text}".encode()
        self._stderr.write_line(line)
        if log is not None:
            log.write(line + b"\n")

    def _was_emptied(self) -> bool:
        """Whether the lease went without a successor: one that has come and gone leaves its own last status."""
        try:
            return self.books.status() in (None, Status.RUNNING)
        except (MarinRulesError, OSError):
            return False

    # -- signals ---------------------------------------------------------------------------------------------

    def _catch_signals(self) -> tuple[int, int]:
        """From now on signals are noted and wake the loop up, through a pipe. Returns its two ends."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

        def note(number: int, frame: FrameType | None) -> None:
            self._stop_signal = self._stop_signal or number

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, note)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        return read, write

    def _wake(self) -> None:
        """Wake the loop up from another thread."""
        with contextlib.suppress(OSError):
            os.write(self._wakeup_write, b"\0")

    def _client_is_gone(self) -> None:
        """Nobody waits for this step any more: that is as good as a signal to stop."""
        self._stop_signal = self._stop_signal or signal.SIGTERM

    def _await_signal(self, seconds: float) -> None:
        """Ending a whole job signals all of its processes: the step may have received it before us."""
        give_up = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._wakeup, selectors.EVENT_READ)
            while not self._stop_signal and (left := give_up - time.monotonic()) > 0:
                if selector.select(left):
                    os.read(self._wakeup, 4096)

    def _sleep(self, seconds: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wakeup, selectors.EVENT_READ)
            if self._client is not None:
                selector.register(self._client, selectors.EVENT_READ)
            for key, _ in selector.select(seconds):
                if key.fd == self._client:
                    self._client_is_gone()
                else:
                    os.read(self._wakeup, 4096)
        if self._stop_signal:
            raise Stopped(self._stop_signal)


def _emptied(step: FrozenStep) -> str:
    """Why a step whose lease is gone, without another holder, has failed."""
    return (
        f"its output folder {step.output_path} was emptied or removed while it ran. That removed the step's lease, so"
        " its result is discarded. Most likely the step did it itself (shutil.rmtree, fs.rm): let it remove only"
        " files of its own, or a folder below its output path, and run it again."
    )


def _gpus_to_share(step: FrozenStep) -> int:
    """How many GPUs of this machine the step asks for. A job of its own has been given them already."""
    return 0 if step.machines is None or own_allocation() is not None else step.machines.gpus
