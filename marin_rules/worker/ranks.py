"""A step on several machines: one process on each, all agreeing on who they are.

In a job with several machines its cluster starts the same process on every one of them (see `clusters.ranks` and
`rank`). Each knows from `this_process()` which one it is and where to meet the others; so do jax.distributed, torch and
others (see `library_variables`). All succeed, or the step has failed: when one ends badly, the others are ended.

What the ranks print goes to the step's log with their numbers, and for each rank to `.executor_log.rank-N` beside it.
On one machine a step has one process, however many replicas it asks for, unless `MARIN_LOCAL_RANKS` is set: then it
has as many processes as replicas.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import TracebackType
from typing import IO, Self

from marin_rules.clusters.allocation import current_allocation
from marin_rules.clusters.local_ranks import LocalRanks
from marin_rules.clusters.ranks import RankCall, Ranks, RanksEnd, is_free, split_address
from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.run import Run
from marin_rules.process import ThisProcess
from marin_rules.state.status import LOG_FILE
from marin_rules.storage.files import make_directory, write_atomic
from marin_rules.storage.objects.growing import GrowingObject
from marin_rules.storage.patience import patiently
from marin_rules.storage.private_files import read_within
from marin_rules.storage.regular_files import open_to_append
from marin_rules.urls import is_url
from marin_rules.worker.module_start import shares_files, start_elsewhere
from marin_rules.worker.noted_signals import noted_stop_signal
from marin_rules.worker.step_call import Outcome

RANK = "marin_rules.worker.rank"

LOCAL_RANKS_VARIABLE = "MARIN_LOCAL_RANKS"
"""If set to 1, all replicas of a step run as processes of one machine: to try what is meant for several."""


@dataclass(frozen=True)
class StepRanks:
    """The ranks that a step runs in."""

    ranks: Ranks
    start: Sequence[str]
    """What starts one of them, on whatever machine it is; its arguments follow."""

    folder: str
    """Where they start: a folder that all machines have."""


def ranks_of(step: FrozenStep) -> StepRanks | None:
    """The ranks that the step runs in; None for a step of one process.

    Called while the variables that control the run are still there, before the step has its own.
    """
    ranks = _ranks_of(step)
    if ranks is None:
        return None
    return StepRanks(ranks, start_elsewhere(step, RANK), os.getcwd() if shares_files() else "/")


def _ranks_of(step: FrozenStep) -> Ranks | None:
    if step.machines is None:
        return None
    allocation = current_allocation()
    ranks = None if allocation is None else allocation.ranks(step.machines)
    if ranks is not None or step.machines.replicas == 1:
        return ranks
    if os.environ.get(LOCAL_RANKS_VARIABLE, "").strip().lower() not in ("", "0", "false", "no"):
        return LocalRanks(step.machines.replicas)
    return None


def run_ranks(step_ranks: StepRanks, plan: FrozenPlan, step: FrozenStep) -> Outcome:
    """Run the step in all its ranks, and wait for all of them."""
    # The ranks are told to stop as well, and may still have something to write: this process waits for their end. (A
    # handler and not SIG_IGN, which they would inherit.)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    os.chdir(step_ranks.folder)
    with RankLogs(step.output_path) as logs, closing(step_ranks.ranks):
        while True:
            end, outcome = _run_once(step_ranks, plan, step, logs)
            if outcome.error is None or not end.lost_machines or noted_stop_signal():
                if end.problem is not None:  # A rank that was killed has not said why in its own log.
                    logs.take(None, f"marin-rules: {end.problem}\n".encode())
                return outcome
            logs.take(None, f"marin-rules: {end.problem}; its ranks are started again\n".encode())


def _run_once(step_ranks: StepRanks, plan: FrozenPlan, step: FrozenStep, logs: RankLogs) -> tuple[RanksEnd, Outcome]:
    ranks = step_ranks.ranks
    reports = os.path.join("ranks", f"{step.digest}-{secrets.token_hex(4)}")
    call = RankCall(
        # A path below a relative prefix is relative to the working directory, which the ranks have from us.
        start=[*step_ranks.start, *rank_arguments(plan, step)],
        report=os.path.join(plan.run.directory, reports),
        purpose=_purpose(step),
        stopped=lambda: bool(noted_stop_signal()),
    )
    end = ranks.run(call, logs.take)
    told = [_report(plan.run, os.path.join(reports, str(rank))) for rank in range(ranks.count)]
    return end, replace(_together(told, end), machines=dict(end.facts))


def rank_arguments(plan: FrozenPlan, step: FrozenStep) -> list[str]:
    """A rank's arguments about its step; the place for its report follows them."""
    return ["--digest", plan.digest, "--plan", plan.run.plan_path, "--step", step.key]


def _purpose(step: FrozenStep) -> str:
    """Distinguishes this attempt at the step from all others that may run at the same time."""
    job = current_allocation()
    return step.key if job is None else f"{step.key} in job {job.job_id}, restart {job.restarts}"


def coordinator_problem(process: ThisProcess) -> str | None:
    """Why the ranks cannot meet where they should, as rank 0 sees it; None if they can."""
    if process.rank != 0 or process.coordinator_address is None:
        return None
    host, port = split_address(process.coordinator_address)
    if is_free(port):
        return None
    return (
        f"port {port} of {host}, at which the ranks are to meet, was taken by another program after it was chosen. Run"
        " the step again."
    )


def check_report(run: Run, folder: str) -> None:
    """Refuse a folder for reports that is not the run's own: on some clusters, whoever can write to the bucket could
    name another one."""
    if ".." in folder.split("/") or not folder.startswith(f"{run.directory.rstrip('/')}/"):
        raise MarinRulesError(f"{folder} is not a place for the reports of ranks: it is not below {run.directory}")


def write_report(folder: str, rank: int, outcome: Outcome) -> None:
    """Report the outcome of this rank to the process that waits for the ranks."""
    write_atomic(os.path.join(folder, str(rank)), json.dumps(asdict(outcome)).encode(), mode=0o600)


def _report(run: Run, name: str) -> Outcome | None:
    data, is_ours = read_within(run.directory, name)
    try:
        outcome = None if data is None else Outcome(**json.loads(data))
    except (ValueError, TypeError):
        return None
    # The exception will be unpickled.
    return outcome if outcome is None or is_ours else replace(outcome, exception=None)


def _together(reports: list[Outcome | None], end: RanksEnd) -> Outcome:
    """The outcome of the step: the result of the first rank, or the error of the one that failed first, if that is
    known, or else of the first that reports one."""
    problem = end.problem
    failed = [(rank, report) for rank, report in enumerate(reports) if report is not None and report.error]
    failed.sort(key=lambda pair: pair[0] != end.first)
    told = [report for report in reports if report is not None]
    stopped_by = noted_stop_signal() or next((report.stopped_by for report in told if report.stopped_by), 0)
    if failed:
        rank, report = failed[0]
        error = f"rank {rank} of {len(reports)}: {report.error}"
        return Outcome(error=error, exception=report.exception, stopped_by=stopped_by)
    missing = [str(rank) for rank, report in enumerate(reports) if report is None]
    if problem is not None or missing:
        which = f"rank {', '.join(missing)} of {len(reports)} ended without a word" if missing else "its ranks failed"
        return Outcome(error=which if problem is None else f"{which} ({problem})", stopped_by=stopped_by)
    return replace(told[0], stopped_by=stopped_by, complete=all(report.complete for report in told))


class RankLogs:
    """The logs of all ranks, and the part of them that goes to the step's own log."""

    def __init__(self, output_path: str) -> None:
        self._path = os.path.join(output_path, LOG_FILE)
        self._files: dict[int, IO[bytes]] = {}
        """The logs themselves, or what goes to an object store in the end."""

        if not is_url(output_path):
            make_directory(output_path)

    def __enter__(self) -> Self:
        return self

    def take(self, rank: int | None, line: bytes) -> None:
        """One line of output: of a rank, or of what starts them (None)."""
        if rank is not None:
            self._keep(rank, line)
            line = b"[rank %d] %s" % (rank, line)
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    def _keep(self, rank: int, line: bytes) -> None:
        if rank not in self._files:
            name = self._name(rank)
            self._files[rank] = (
                tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
                if is_url(name)
                else os.fdopen(open_to_append(name), "ab", buffering=0)
            )
        self._files[rank].write(line)

    def _name(self, rank: int) -> str:
        return f"{self._path}.rank-{rank}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for rank, file in self._files.items():
            with file:
                if is_url(self._path):
                    log = GrowingObject(self._name(rank))
                    patiently(partial(log.publish, file.fileno(), lambda: True))
