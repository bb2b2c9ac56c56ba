"""What a person sees while Snakemake works: the table of steps, a line for each, and a live line of progress.

Messages that are not about steps are shown as Snakemake writes them. On a terminal the last line counts what is done,
running and waiting; elsewhere (a file, CI) there are plain lines only.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from logging import LogRecord
from typing import Any

from snakemake.settings.types import Quietness
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from marin_rules.clusters.estimates import summary
from marin_rules.driver.dry_run import trouble_ahead
from marin_rules.engine import plan_in_process
from marin_rules.engine.plan_in_process import PlanInProcess
from marin_rules.engine.trouble import told_in
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.failures import read_failures
from marin_rules.state.status import Status, read_status
from marin_rules.state.step_lease import peek
from marin_rules.state.step_log import CLEAR_LINE, last_lines, log_path
from marin_rules.state.table import table
from marin_rules.units import clock_now, duration
from marin_rules.views.closing import FailedStep, closing

_TICK_SECONDS = 0.5
_NOTHING_TO_DO = "Nothing to be done"
ALL_DONE = "All jobs of this run are done"
"""Logged at the end of a successful run."""

_STOPPED_BY_FAILURE = "Exiting because a job execution failed"
_UNFINISHED = "WorkflowError:\nAt least one job"
_WORKER_IS_GONE = "its worker is gone, perhaps killed"
_ABOUT_FAILED_JOBS = ("RuleException", _UNFINISHED)
"""What Snakemake adds to a failure that has been reported as a step's."""

_ADDED_TO_REASONS = "For further error details see the cluster/cloud log and the log files of the involved rule(s)."
"""What Snakemake adds to the reason why a job failed."""

_LAST_LINES = 20
"""Lines shown of the log of a step that failed elsewhere."""

_UNINTERESTING = (
    "Assuming unrestricted shared filesystem usage",
    "Building DAG of jobs",
    "Using shell",
    "Conda environments: ignored",
    "Provided cores",
    "Rules claiming more threads",
    "Select jobs to execute",
    "Execute ",
    "This was a dry-run",
    "The order of jobs does not reflect",
    "Removing output files of failed job",
    "Config file ",
    "Warning: the following output files of rule",
    "Missing metadata for file",
    "Reasons:",
    "Elapsed time",
    "Complete log(s)",
    "Trying to restart job",
)


class LogHandler(LogHandlerBase):
    """Snakemake's messages, in terms of steps."""

    def __post_init__(self) -> None:
        self._stream = sys.stdout if self.common_settings.stdout else sys.stderr
        self._terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._colour = self._terminal and not self.common_settings.nocolor and "NO_COLOR" not in os.environ
        self._writing = threading.RLock()
        self._running: dict[int, tuple[FrozenStep, float]] = {}
        self._done = 0
        self._failed: dict[int, str] = {}
        """Index of the step -> the reason that Snakemake gives, if any."""

        self._stopped: set[int] = set()
        self._total = 0
        self._began = time.monotonic()
        self._told_table = False
        self._told_end = False
        self._ticking: threading.Event | None = None

    # -- what kind of handler this is ------------------------------------------------------------------------

    @property
    def writes_to_stream(self) -> bool:
        return True

    @property
    def writes_to_file(self) -> bool:
        return False

    @property
    def has_filter(self) -> bool:
        return False

    @property
    def has_formatter(self) -> bool:
        return False

    @property
    def needs_rulegraph(self) -> bool:
        return False

    # -- events ----------------------------------------------------------------------------------------------

    def emit(self, record: LogRecord) -> None:
        try:
            self._tell(record)
        except BrokenPipeError:
            raise
        except Exception:
            self.handleError(record)

    def _tell(self, record: LogRecord) -> None:
        in_process = plan_in_process.current() if plan_in_process.exists() else None
        event = getattr(record, "event", None)
        message = str(record.msg or "")
        if event is None and message.startswith(_UNINTERESTING):
            return
        if (trouble := told_in(message)) is not None:
            self._write(f"error: {trouble}")
        elif in_process is None or self.common_settings.verbose:
            self._write(self.format(record))
            if in_process is not None and (event is LogEvent.RUN_INFO or message.startswith(_NOTHING_TO_DO)):
                self._tell_table(in_process)
        elif event is LogEvent.WORKFLOW_STARTED:
            self._write(f"experiment {in_process.plan.run.caller_path}, prefix {in_process.plan.run.prefix}")
            for warning in in_process.plan.warnings:
                self._write(f"warning: {warning}")
        elif event is LogEvent.RUN_INFO:
            self._tell_table(in_process)
        elif message.startswith(_NOTHING_TO_DO):
            if not self._keeps_quiet(in_process):
                self._tell_table(in_process)
            if not self.common_settings.dryrun:
                self._tell_results(in_process)
        elif message == ALL_DONE:
            self._stop_ticking()
            self._tell_results(in_process)
        elif event is LogEvent.JOB_INFO:
            self._started(in_process, record)
        elif event is LogEvent.JOB_FINISHED:
            self._finished(in_process, record)
        elif event is LogEvent.JOB_ERROR:
            self._errored(in_process, record)
        elif event is LogEvent.PROGRESS:
            self._progressed(record)
        elif event is LogEvent.SHELLCMD and message.endswith("None"):
            return  # The rule `all` has no command.
        elif message.startswith(_STOPPED_BY_FAILURE):
            self._tell_end(in_process)
        elif message.startswith(_UNFINISHED) and self._told_table and not self.common_settings.dryrun:
            self._tell_end(in_process)  # Also after an interrupt.
        elif (message.startswith(_ABOUT_FAILED_JOBS) and (self._failed or "run-step" in message)) or event in (
            LogEvent.JOB_STARTED,
            LogEvent.RESOURCES_INFO,
            LogEvent.RULEGRAPH,
        ):
            return
        else:
            self._write(self.format(record))

    def _keeps_quiet(self, in_process: PlanInProcess) -> bool:
        """Whether `--quiet` hides the table of a dry run that made no jobs: Snakemake hides the count of its jobs then,
        but not that there is nothing to be done."""
        is_hidden = Quietness.PROGRESS in (self.common_settings.quiet or ())
        return is_hidden and in_process.assessment is not None and bool(in_process.assessment.scheduled)

    def _tell_table(self, in_process: PlanInProcess) -> None:
        if self._told_table or in_process.assessment is None:
            return
        self._told_table = True
        dry_run = self.common_settings.dryrun
        show = table(
            in_process.assessment,
            dry_run=dry_run,
            colour=self._colour,
            whole=self.common_settings.verbose,
            destination=in_process.destination,
            cost=summary(in_process.estimates()),
        )
        self._write(f"\n{show}\n")
        if dry_run and (trouble := trouble_ahead(in_process.plan, in_process.assessment)) is not None:
            self._write(f"warning: {trouble}")
        if dry_run and (why := in_process.obstacle()) is not None:
            self._write(f"warning: a run would stop before its first step: {why}")
        self._total = len(in_process.assessment.scheduled)
        if not dry_run and self._terminal and self._total:
            self._ticking = threading.Event()
            threading.Thread(target=self._tick, args=(self._ticking,), daemon=True).start()

    def _started(self, in_process: PlanInProcess, record: LogRecord) -> None:
        step = _step(in_process, record.__dict__)
        if step is None:
            if record.__dict__.get("rule_name") != "all":
                self._write(self.format(record))
            return
        if self.common_settings.dryrun:
            if self.common_settings.printshellcmds:
                self._write(self.format(record))
            return
        self._running[record.__dict__["jobid"]] = (step, time.monotonic())
        self._failed.pop(step.index, None)  # It may get another chance.
        self._stopped.discard(step.index)
        if record.__dict__.get("local") or not in_process.is_remote(step):
            self._write(f"{clock_now()} start  {step.name}")

    def _finished(self, in_process: PlanInProcess, record: LogRecord) -> None:
        running = self._running.pop(record.__dict__.get("job_id", record.__dict__.get("jobid", -1)), None)
        if running is None:
            return
        step, began = running
        self._done += 1
        self._write(
            f"{clock_now()} done   {step.name} ({duration(time.monotonic() - began)})  {self._done}/{self._total}"
        )

    def _errored(self, in_process: PlanInProcess, record: LogRecord) -> None:
        running = self._running.pop(record.__dict__["jobid"], None)
        if running is None:
            self._write(self.format(record))
            return
        step, began = running
        reason = str(record.__dict__.get("rule_msg") or "").removesuffix(_ADDED_TO_REASONS)
        status = _status(step)
        if not in_process.is_remote(step):
            reason = _WORKER_IS_GONE if status is Status.RUNNING and _is_abandoned(step) else ""
        if status is Status.CANCELLED:
            what = "stopped"
            self._stopped.add(step.index)
        else:
            what = "FAILED"
            self._failed[step.index] = reason
        self._write(
            f"{clock_now()} {what} {step.name} after {duration(time.monotonic() - began)}"
            + (f": {reason}" if reason else "")
        )
        if in_process.is_remote(step):
            self._tell_last_lines(step)
        if self.common_settings.printshellcmds:
            self._write(f"         command: {record.__dict__.get('shellcmd')}")

    def _tell_last_lines(self, step: FrozenStep) -> None:
        """What a step printed elsewhere has not been seen here."""
        with contextlib.suppress(OSError):
            for line in last_lines(step.output_path, _LAST_LINES):
                self._write(f"[{step.name}] {line}")

    def _progressed(self, record: LogRecord) -> None:
        if record.__dict__.get("done") == record.__dict__.get("total"):
            self._stop_ticking()

    def _tell_results(self, in_process: PlanInProcess) -> None:
        """Where the results are: the paths of what was asked for."""
        if any(step.root for step in in_process.plan.steps):
            self._write(f"\n{in_process.results()}")

    def _tell_end(self, in_process: PlanInProcess) -> None:
        """What failed and why, what was stopped or never started, and what to do; once."""
        if self._told_end:
            return
        self._told_end = True
        self._stop_ticking()
        stopped = len(self._stopped) + len(self._running)
        told = closing(
            done=self._done,
            failed=failed_steps(in_process.plan, self._failed),
            stopped=stopped,
            left=max(0, self._total - self._done - len(self._failed) - stopped),
            retries_failed=in_process.plan.run.force_run_failed,
        )
        self._write(f"\n{told}")

    # -- the live line ---------------------------------------------------------------------------------------

    def _tick(self, stopped: threading.Event) -> None:
        while not stopped.wait(_TICK_SECONDS):
            with self._writing:
                waiting = max(0, self._total - self._done - len(self._failed) - len(self._running))
                names = ", ".join(step.name for step, _ in list(self._running.values())[:3])
                line = f"{self._done} done, {len(self._running)} running, {waiting} waiting"
                line += f", {len(self._failed)} failed" if self._failed else ""
                line += f"  {duration(time.monotonic() - self._began)}  {names}"
                columns = os.get_terminal_size(self._stream.fileno()).columns
                self._stream.write(CLEAR_LINE.decode() + line[: columns - 1])
                self._stream.flush()

    def _stop_ticking(self) -> None:
        if self._ticking is not None:
            self._ticking.set()
            self._ticking = None

    def close(self) -> None:
        self._stop_ticking()
        if self._terminal:
            with self._writing:
                self._stream.write(CLEAR_LINE.decode())
                self._stream.flush()
        super().close()

    def _write(self, text: str) -> None:
        with self._writing:
            self._stream.write((CLEAR_LINE.decode() if self._ticking else "") + text + "\n")
            self._stream.flush()


def failed_steps(plan: FrozenPlan, reasons: Mapping[int, str]) -> list[FailedStep]:
    """What is known about steps that failed in this run: from their workers, or else from the reasons that Snakemake
    gave.

    `reasons` has the index of each of them.
    """
    told: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError, TypeError):
        told = {failure.output_path: failure.message for failure in read_failures(plan)}
    failed = [plan.steps[index] for index in sorted(reasons)]
    return [
        FailedStep(step.name, log_path(step.output_path), told.get(step.output_path) or reasons[step.index])
        for step in failed
    ]


def _status(step: FrozenStep) -> Status | None:
    with contextlib.suppress(OSError, ValueError):
        return read_status(step.output_path)
    return None


def _is_abandoned(step: FrozenStep) -> bool:
    """Whether the worker that holds the step is dead: then its status does not say how it ended."""
    with contextlib.suppress(OSError, ValueError):
        record = peek(step.output_path)
        return record is not None and record.owner is not None and record.owner.is_dead_here()
    return False


def _step(in_process: PlanInProcess, message: dict[str, Any]) -> FrozenStep | None:
    wildcards = message.get("wildcards") or {}
    key = wildcards.get("step") if hasattr(wildcards, "get") else getattr(wildcards, "step", None)
    try:
        return in_process.step(str(key))
    except KeyError:
        return None
