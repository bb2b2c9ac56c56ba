"""The worker: runs one step of a frozen plan under its lease.

    python -m marin_rules.execution.worker --plan PLAN --step NAME-HASH

It takes the lease, and the GPUs that the step asks for (or waits for whoever has them), writes RUNNING, lets the step's
code run in a process of its own, passes the output on while the heartbeat refreshes the lease, and writes the final
state last and atomically, only while the lease is still its own. A worker that lost its lease ends the step and writes
nothing. Whatever kills it, the next worker finds either a finished step or one to be run again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from marin_rules.errors import MarinRulesError
from marin_rules.execution.conda import active_prefix, describe_environment, search_path
from marin_rules.execution.drive import Failure, PreviousTaskFailedError, record_failure
from marin_rules.execution.frozen import FrozenPlan, FrozenStep, check_python
from marin_rules.execution.gpu_slots import GpuSlots
from marin_rules.execution.info import check_version, info_bytes, info_path, parse_info, step_info, timestamp
from marin_rules.execution.status import ARTIFACT_FILE, Status, parse_status, read_status, status_bytes, status_path
from marin_rules.execution.step_call import Outcome
from marin_rules.execution.step_lease import open_lease, peek
from marin_rules.execution.step_log import OutputStream, StepLog, Terminal, attempt_line, log_path
from marin_rules.execution.step_process import Script, StepProcess
from marin_rules.slurm.allocation import DRIVER_JOB_VARIABLE, Allocation
from marin_rules.software.manifest import read_manifest
from marin_rules.storage.files import read_bytes
from marin_rules.storage.leases.heartbeat import Heartbeat
from marin_rules.storage.leases.lease import Lease, LeaseLostError
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import CorruptLeaseError, LeaseRecord, describe
from marin_rules.storage.leases.store import ChangedError
from marin_rules.storage.patience import patiently

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_LEASE_LOST = 75
"""EX_TEMPFAIL: somebody else has the step now."""

STOP_GRACE_SECONDS = 4.0
JOB_STOP_GRACE_SECONDS = 20.0
"""How long a step may take to end after SIGTERM, before it is killed: here, where a person waits for it, and in a Slurm
job, where it may have a large checkpoint to write. Slurm itself gives a job 30 s, unless a site says otherwise."""

_SAME_SIGNAL_SECONDS = 1.0
"""How much later than its step a worker may hear of a signal that was meant for both."""

_TERMINAL_SECONDS = 0.2
_TERMINAL_END_SECONDS = 2.0
"""How often output is offered to a terminal that does not take it, and how long in the end."""

_RELEASE_SECONDS = 10.0
"""How long a lease that nobody needs any more is worth the wait for its store."""

_WAIT_SECONDS = (0.05, 2.0)
"""First and longest pause between two looks at a lease that somebody else holds."""


class Stopped(Exception):
    """A signal asked this worker to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Worker:
    """One step, from the lease to the final state."""

    def __init__(
        self,
        plan: FrozenPlan,
        step: FrozenStep,
        *,
        script: Script | None = None,
        log_link: str = "",
        client: int | None = None,
        process: StepProcess | None = None,
    ) -> None:
        self.plan = plan
        self.step = step
        self.forced = step.index in plan.forced
        self.owner = Owner.current()
        self.lease: Lease = open_lease(step.output_path, self.owner)
        self.gpus = GpuSlots(_gpus_to_share(step), step.name)
        self.process = process or StepProcess(plan)
        self._script = script
        self.started = time.time()
        self._stdout, self._stderr = Terminal(1), Terminal(2)
        self._log_link = log_link
        self._client = client
        self._stop_signal = 0
        self._has_begun = False
        self._has_ended = False
        self._writing_info = threading.Lock()
        self._previous: bytes | None = None
        self._conda_prefix: str | None = None
        self._wakeup, self._wakeup_write = self._catch_signals()

    def run(self) -> int:
        try:
            self._check_conda()
            if not self._acquire():
                return EXIT_DONE
            try:
                return self._run_leased()
            finally:
                self.process.kill()  # Nobody else may have the step before this one is over.
                self._tell_what_is_left()
                self._release()
        except Stopped as stopped:
            self._say(f"stopped by {stopped} before it started")
            return 128 + stopped.number
        except LeaseLostError as lost:
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
        """What the step's process has in its environment beside what this one has."""
        path = {} if self._conda_prefix is None else {"PATH": search_path(self._conda_prefix)}
        return {**self.gpus.variables, **path}

    def _acquire(self) -> bool:
        """Take GPUs and lease, and write RUNNING; False when the step turns out to be done already.

        While one of the two is missing, the other is left to those who can use it.
        """
        pause, told, waited = _WAIT_SECONDS[0], "", False
        while True:
            missing = self.gpus.try_take()
            holder = self._patiently(self.lease.try_acquire if missing is None else self._find_holder)
            if missing is None and holder is None:
                try:
                    if self._take_up(waited):
                        return True
                    self._release()
                    return False
                except ChangedError:
                    continue  # Its last worker changed the status in this very moment: what does it say now?
                except BaseException:
                    self._release()
                    raise
            self.gpus.release()
            status = read_status(self.step.output_path)
            if status is Status.SUCCESS and (waited or not self.forced):
                check_version(self.plan, self.step, read_bytes(info_path(self.step.output_path)))
                self._say_done(waited)
                return False
            waited = waited or holder is not None
            waits_for = "GPUs" if holder is None else holder.worker_id
            if waits_for != told:
                told = waits_for
                reason = missing if holder is None else f"held by {describe(holder, time.time())}"
                self._say(f"waiting: {reason}")
            self._sleep(pause)
            pause = min(pause * 1.5, _WAIT_SECONDS[1])

    def _find_holder(self) -> LeaseRecord | None:
        """Who has the lease, as far as can be seen without taking it."""
        with contextlib.suppress(CorruptLeaseError):
            record = peek(self.step.output_path)
            if record is not None and not (record.owner and record.owner.is_dead_here()):
                return record
        return None

    def _take_up(self, waited: bool) -> bool:
        """With the lease in hand: see what is to be done, and write RUNNING; False when there is nothing to do."""
        path = status_path(self.step.output_path)
        data = self._patiently(lambda: self.lease.read(path))
        status = None if data is None else parse_status(data, path)
        # Before anything is believed: the run that had the step may have put another version on the same path.
        self._previous = self._patiently(lambda: self.lease.read(info_path(self.step.output_path)))
        check_version(self.plan, self.step, self._previous)
        if status is Status.SUCCESS and (waited or not self.forced):
            self._say_done(waited)
            return False
        if status is Status.FAILED and not self.plan.run.force_run_failed and not waited:
            self._refuse_previous_failure()
        if status is Status.FAILED and waited:
            raise MarinRulesError(
                f"the step failed in the other run that had it; {log_path(self.step.output_path)} tells why."
                " Start the experiment again to run it once more."
            )
        if status is Status.CANCELLED and self._is_retry() and _job() is None:
            raise MarinRulesError("the step was stopped in this run; start the experiment again to run it once more.")
        running = status_bytes(Status.RUNNING, self.step.output_path)
        self._patiently(lambda: self.lease.commit(path, running, durable=False))
        return True

    def _release(self) -> None:
        """Give the lease back. If the store does not answer, it expires by itself: no reason to fail."""
        try:
            patiently(self.lease.release, say=self._say, seconds=_RELEASE_SECONDS)
        except OSError as error:
            self._say(f"could not give its lease back, it will expire: {error}")

    def _tell_what_is_left(self) -> None:
        for process in self.process.left.values():
            self._say(f"left running: {process}, which only that user or an administrator can end")

    def _say_done(self, waited: bool) -> None:
        self._say("already done by another run" if not waited else "done by the other run")

    def _refuse_previous_failure(self) -> None:
        """Refuse a step that failed before this run; a retry within the run is allowed."""
        if self._is_retry():
            return
        raise PreviousTaskFailedError(
            f"step {self.step.name} failed previously and is not run again (force_run_failed=false); its log:"
            f" {log_path(self.step.output_path)}"
        )

    def _is_retry(self) -> bool:
        """Whether this run has tried the step before."""
        return bool(self._previous_info().get("run", {}).get("id") == self.plan.run.id)

    def _previous_info(self) -> dict[str, Any]:
        """What the last worker wrote down about the step; nothing if this is the first."""
        return {} if self._previous is None else parse_info(self._previous, info_path(self.step.output_path))

    def _run_leased(self) -> int:
        log = self._patiently(lambda: StepLog(self.step.output_path, self.lease.read, self._publish))
        try:
            log.link_from(self._log_link)
            info = self._begin()
            log.write(attempt_line(timestamp(self.started), info["run"]["attempt"], self.owner.worker_id))
            started = info_bytes(info)
            heartbeat = Heartbeat(
                self.lease,
                wake=self._wake,
                say=self._say,
                at_first=lambda: self._note_start(started),
                at_each_beat=lambda: self._show_progress(log),
            )
            try:
                outcome = self._watch(log, heartbeat)
                return self._finish(info, outcome, log)
            finally:
                self.process.kill()  # Before anything that may have to wait for the store.
                heartbeat.stop()
        finally:
            log.close()

    def _publish(self, path: str, data: bytes) -> None:
        self.lease.overwrite(path, data, durable=False)

    def _show_progress(self, log: StepLog) -> None:
        """Publish the log so far. Trouble with that is no reason for the step to fail."""
        try:
            log.flush()
        except (OSError, LeaseLostError) as error:
            self._say(f"could not publish {log.path}: {error}")

    def _begin(self) -> dict[str, Any]:
        """Gather what is known of the step."""
        attempt = 1 + int(self._previous_info().get("run", {}).get("attempt", 0))
        info = step_info(self.plan, self.step)
        info["run"] = {
            "id": self.plan.run.id,
            "worker_id": self.owner.worker_id,
            "host": self.owner.host,
            "user": self.owner.user,
            "git_commit": self.plan.run.git_commit,
            "caller_path": self.plan.run.caller_path,
            "attempt": attempt,
            "started": timestamp(self.started),
        }
        job = _job()
        if job is not None:
            info["run"]["slurm"] = job.to_fields()
        if self._conda_prefix is not None:
            environment = self.plan.conda[self.step.index]
            info["run"]["environment"] = describe_environment(environment, self._conda_prefix)
        elif self.step.software is not None:
            manifest = read_manifest(sys.prefix)
            info["run"]["environment"] = {"path": sys.prefix, **(manifest.to_fields() if manifest else {})}
        if self.gpus.wanted:
            info["run"]["gpus"] = list(self.gpus.names)
        return info

    # -- while the step runs ---------------------------------------------------------------------------------

    def _watch(self, log: StepLog, heartbeat: Heartbeat) -> Outcome:
        """Pass output on until the step's process ends, or until the lease is lost."""
        process = self.process
        streams = {
            process.stdout: OutputStream(self.step.name, self._stdout, log),
            process.stderr: OutputStream(self.step.name, self._stderr, log),
        }
        result = bytearray()
        with selectors.DefaultSelector() as selector:
            for descriptor in (*streams, process.result, self._wakeup):
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            if self._client is not None:
                selector.register(self._client, selectors.EVENT_READ)
            process.go(self.step, self._script, self._variables())
            self._has_begun = True
            heartbeat.start()
            kill_at: float | None = None
            while not process.ended():
                due = heartbeat.deadline if kill_at is None else min(heartbeat.deadline, kill_at)
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
                    elif self._pass_on(key.fd, streams, result) == b"":
                        selector.unregister(key.fd)
                now = time.monotonic()
                if self._stop_signal and kill_at is None:
                    process.stop(signal.SIGTERM)
                    kill_at = now + (STOP_GRACE_SECONDS if _job() is None else JOB_STOP_GRACE_SECONDS)
                if kill_at is not None and now >= kill_at:
                    process.stop(signal.SIGKILL)
                    kill_at = now + STOP_GRACE_SECONDS
                heartbeat.check()
            process.stop(signal.SIGKILL)
            for descriptor in (*streams, process.result):
                while self._pass_on(descriptor, streams, result):
                    pass
        for stream in streams.values():
            stream.end()
        return process.outcome(bytes(result))

    def _note_start(self, info: bytes) -> None:
        """Write down what is known so far, while the step's code runs already. At the end all is written again."""
        with self._writing_info:
            if self._has_ended:
                return
            try:
                self.lease.overwrite(info_path(self.step.output_path), info, durable=False)
            except (OSError, LeaseLostError) as error:
                self._say(f"could not write {info_path(self.step.output_path)} yet: {error}")

    @staticmethod
    def _pass_on(descriptor: int, streams: dict[int, OutputStream], result: bytearray) -> bytes | None:
        """Read once and pass it on; nothing (b"") at the end of the stream, None if there is nothing right now."""
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return None
        if descriptor in streams:
            streams[descriptor].feed(data)
        else:
            result += data
        return data

    # -- after the step --------------------------------------------------------------------------------------

    def _finish(self, info: dict[str, Any], outcome: Outcome, log: StepLog) -> int:
        status = Status.SUCCESS if outcome.error is None else Status.FAILED
        if status is Status.FAILED and self.process.was_terminated:
            self._await_signal(_SAME_SIGNAL_SECONDS)
        if status is Status.FAILED and self._stop_signal:
            status = Status.CANCELLED
            outcome = Outcome(error=f"stopped by {signal.Signals(self._stop_signal).name}")
        finished = time.time()
        info["run"] |= {"finished": timestamp(finished), "seconds": round(finished - self.started, 3)}
        if outcome.error is not None:
            info["run"]["error"] = outcome.error
        if outcome.warning is not None:
            self._say(f"warning: {outcome.warning}", log)
        if status is Status.SUCCESS and outcome.artifact is not None:
            self._overwrite(os.path.join(self.step.output_path, ARTIFACT_FILE), outcome.artifact.encode() + b"\n")
        with self._writing_info:
            self._has_ended = True
            self._overwrite(info_path(self.step.output_path), info_bytes(info), durable=False)
        log.write(f"--- {info['run']['finished']} {status} after {info['run']['seconds']} s\n".encode())
        self._show_progress(log)
        word = status_bytes(status, self.step.output_path, again=self.forced)
        self._overwrite(status_path(self.step.output_path), word)
        if status is Status.SUCCESS:
            return EXIT_DONE
        self._say(f"{status}: {outcome.error}; log: {log.path}")
        if status is Status.CANCELLED:
            return 128 + self._stop_signal
        self._record(outcome.error or "", outcome.exception)
        return EXIT_FAILED

    def _overwrite(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._patiently(lambda: self.lease.overwrite(path, data, durable=durable))

    def _patiently[Result](self, action: Callable[[], Result]) -> Result:
        # Before the step has begun, a signal to stop ends the wait at once; after it there is a state to be written.
        return patiently(action, say=self._say, sleep=time.sleep if self._has_begun else self._sleep)

    def _record(self, message: str, exception: str | None = None, *, previous: bool = False) -> None:
        failure = Failure(self.step.name, self.step.output_path, message, previous, exception)
        try:
            record_failure(self.plan.run, self.step.digest, failure)
        except OSError as error:
            self._say(f"could not tell the driver why it failed: {error}")

    def _say(self, text: str, log: StepLog | None = None) -> None:
        line = f"[{self.step.name}] {text}".encode()
        self._stderr.write_line(line)
        if log is not None:
            log.write(line + b"\n")

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
        """Whoever waited for this step does not any more: that is as good as a signal to stop."""
        self._stop_signal = self._stop_signal or signal.SIGTERM

    def _await_signal(self, seconds: float) -> None:
        """Whoever ends a whole job tells all of its processes: the step may have heard of it before us."""
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


def _gpus_to_share(step: FrozenStep) -> int:
    """How many GPUs of this machine the step asks for. In a job of its own Slurm has given them already."""
    return 0 if step.machines is None or _job() is not None else step.machines.gpus


def _job() -> Allocation | None:
    """The Slurm job of this step alone; None on the machine of the driver, also if that is in a job itself."""
    allocation = Allocation.current()
    is_drivers = allocation is not None and allocation.job_id == os.environ.get(DRIVER_JOB_VARIABLE)
    return None if is_drivers else allocation


_PARSER = argparse.ArgumentParser(prog="marin_rules.execution.worker", description="Run one step of a frozen plan.")
_PARSER.add_argument("--plan", required=True, help="the frozen plan")
_PARSER.add_argument("--step", required=True, help="the step's key: its <name>-<hash>")
_PARSER.add_argument("--log", default="", metavar="PATH", help="make a link to the step's log here")
_PARSER.add_argument("--script", metavar="INTERPRETER", help="run the script on standard input under the lease")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    return _PARSER.parse_args(arguments)


def main(
    options: argparse.Namespace,
    plan: FrozenPlan | None = None,
    client: int | None = None,
    process: StepProcess | None = None,
) -> int:
    """Run the step that the options name; `plan` and `process` are given if they are there already.

    `client` is a pipe to whoever waits for the step: when its other end is closed, the step is stopped.
    """
    try:
        plan = plan or FrozenPlan.read(options.plan)
        check_python(plan.run)
        step = plan.by_key.get(options.step)
        if step is None:
            raise MarinRulesError(f"the plan {options.plan} has no step {options.step}")
        script = Script(sys.stdin.buffer.read(), shlex.split(options.script)) if options.script else None
        return Worker(plan, step, script=script, log_link=options.log, client=client, process=process).run()
    except MarinRulesError as error:
        sys.stderr.write(f"marin-rules: {error}\n")
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:])))
