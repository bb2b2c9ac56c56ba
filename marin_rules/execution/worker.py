"""The worker: runs one step of a frozen plan under its lease.

    python -m marin_rules.execution.worker --plan PLAN --step NAME-HASH

It takes the lease (or waits for whoever has it), writes RUNNING, lets the step's code run in a process of its own,
refreshes the lease, passes the output on, and writes the final state last and atomically, only while the lease is
still its own. A worker that lost its lease ends the step and writes nothing. Whatever kills it, the next worker finds
either a finished step or one to be run again.
"""

from __future__ import annotations

import argparse
import os
import selectors
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

from marin_rules.errors import MarinRulesError
from marin_rules.execution.drive import Failure, PreviousTaskFailedError, record_failure
from marin_rules.execution.frozen import FrozenPlan, FrozenStep
from marin_rules.execution.info import check_version, info_bytes, info_path, read_info, step_info, timestamp
from marin_rules.execution.lease import HEARTBEAT_SECONDS, LIFETIME_SECONDS, Lease, LeaseLostError, describe
from marin_rules.execution.owner import Owner
from marin_rules.execution.status import ARTIFACT_FILE, Status, read_status, status_path
from marin_rules.execution.step_lease import open_lease
from marin_rules.execution.step_log import OutputStream, StepLog, Terminal, log_path
from marin_rules.execution.step_process import Outcome, Script, StepProcess

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_LEASE_LOST = 75
"""EX_TEMPFAIL: somebody else has the step now."""

STOP_GRACE_SECONDS = 4.0
"""How long a step may take to end after SIGTERM, before it is killed."""

_BEAT_AGAIN_SECONDS = 5.0
_TERMINAL_SECONDS = 0.2
_TERMINAL_END_SECONDS = 2.0
"""How often output is offered to a terminal that does not take it, and how long in the end."""

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
        self.process = process or StepProcess(plan)
        self._script = script
        self.started = time.time()
        self._stdout, self._stderr = Terminal(1), Terminal(2)
        self._log_link = log_link
        self._client = client
        self._stop_signal = 0
        self._last_beat = 0.0
        self._wakeup, self._wakeup_write = self._catch_signals()

    def run(self) -> int:
        try:
            if not self._acquire():
                return EXIT_DONE
            try:
                return self._run_leased()
            finally:
                self.lease.release()
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
            self.process.stop(signal.SIGKILL)
            self.process.close()
            self._stdout.flush(_TERMINAL_END_SECONDS)
            self._stderr.flush(_TERMINAL_END_SECONDS)
            signal.set_wakeup_fd(-1)
            os.close(self._wakeup)
            os.close(self._wakeup_write)

    # -- before the step -------------------------------------------------------------------------------------

    def _acquire(self) -> bool:
        """Take the lease; False when the step turns out to be done already."""
        pause, told, waited = _WAIT_SECONDS[0], "", False
        while True:
            holder = self.lease.try_acquire()
            status = read_status(self.step.output_path)
            if status is Status.SUCCESS and (waited or not self.forced):
                if holder is None:
                    self.lease.release()
                self._say("already done by another run" if not waited else "done by the other run")
                return False
            if holder is None:
                if status is Status.FAILED and not self.plan.run.force_run_failed and not waited:
                    self._refuse_previous_failure()
                if waited and status is Status.FAILED:
                    self.lease.release()
                    raise MarinRulesError(
                        f"the step failed in the other run that had it; {log_path(self.step.output_path)} tells why."
                        " Start the experiment again to run it once more."
                    )
                return True
            waited = True
            if holder.worker_id != told:
                told = holder.worker_id
                self._say(f"waiting: held by {describe(holder, time.time())}")
            self._sleep(pause)
            pause = min(pause * 1.5, _WAIT_SECONDS[1])

    def _refuse_previous_failure(self) -> None:
        """Refuse a step that failed before this run; a retry within the run is allowed."""
        info = read_info(self.step.output_path) or {}
        if info.get("run", {}).get("id") == self.plan.run.id:
            return
        self.lease.release()
        raise PreviousTaskFailedError(
            f"step {self.step.name} failed previously and is not run again (force_run_failed=false); its log:"
            f" {log_path(self.step.output_path)}"
        )

    def _run_leased(self) -> int:
        check_version(self.plan, self.step)
        log = StepLog(self.step.output_path)
        try:
            log.link_from(self._log_link)
            info = self._begin()
            log.write(
                f"--- {timestamp(self.started)} attempt {info['run']['attempt']} by {self.owner.worker_id}\n".encode()
            )
            outcome = self._watch(log, info)
            return self._finish(info, outcome, log)
        finally:
            log.close()

    def _begin(self) -> dict[str, Any]:
        """Say that the step runs, and gather what is known of it."""
        attempt = 1
        previous = read_info(self.step.output_path)
        if previous is not None:
            attempt += int(previous.get("run", {}).get("attempt", 0))
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
        self._commit(Status.RUNNING, durable=False)
        return info

    # -- while the step runs ---------------------------------------------------------------------------------

    def _watch(self, log: StepLog, info: dict[str, Any]) -> Outcome:
        """Pass output on and keep the lease until the step's process ends."""
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
            process.go(self.step, self._script)
            self._commit_info(info)  # The step's code need not wait for it.
            self._last_beat = time.monotonic()
            heartbeat = self._last_beat + HEARTBEAT_SECONDS
            kill_at: float | None = None
            while not process.ended():
                due = heartbeat if kill_at is None else min(heartbeat, kill_at)
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
                    kill_at = now + STOP_GRACE_SECONDS
                if kill_at is not None and now >= kill_at:
                    process.stop(signal.SIGKILL)
                    kill_at = now + STOP_GRACE_SECONDS
                if now >= heartbeat:
                    heartbeat = now + self._beat(now)
                    log.flush()
            process.stop(signal.SIGKILL)
            for descriptor in (*streams, process.result):
                while self._pass_on(descriptor, streams, result):
                    pass
        for stream in streams.values():
            stream.end()
        return process.outcome(bytes(result))

    def _beat(self, now: float) -> float:
        """Refresh the lease; returns the seconds until the next time. Trouble of the disk is given some time."""
        try:
            self.lease.refresh()
        except OSError as error:
            if now - self._last_beat > LIFETIME_SECONDS - HEARTBEAT_SECONDS:
                raise
            self._say(f"could not refresh its lease, will try again: {error}")
            return _BEAT_AGAIN_SECONDS
        self._last_beat = now
        return HEARTBEAT_SECONDS

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
            self.lease.commit(os.path.join(self.step.output_path, ARTIFACT_FILE), outcome.artifact.encode() + b"\n")
        self._commit_info(info)
        log.write(f"--- {info['run']['finished']} {status} after {info['run']['seconds']} s\n".encode())
        self._commit(status)
        if status is Status.SUCCESS:
            return EXIT_DONE
        self._say(f"{status}: {outcome.error}; log: {log.path}")
        if status is Status.CANCELLED:
            return 128 + self._stop_signal
        self._record(outcome.error or "", outcome.exception)
        return EXIT_FAILED

    def _commit(self, status: Status, *, durable: bool = True) -> None:
        self.lease.commit(status_path(self.step.output_path), status.encode(), durable=durable)

    def _commit_info(self, info: dict[str, Any]) -> None:
        self.lease.commit(info_path(self.step.output_path), info_bytes(info), durable=False)

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

    def _client_is_gone(self) -> None:
        """Whoever waited for this step does not any more: that is as good as a signal to stop."""
        self._stop_signal = self._stop_signal or signal.SIGTERM

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
