"""A step on several machines: one process on each, all of one mind about who they are.

Inside a Slurm job with several nodes, srun starts the same process on every one of them (see `rank`).
Each finds the variables by which jax.distributed, Levanter and others know their rank and their peers. All succeed, or
the step has failed: when one ends badly, srun ends the others.

What the ranks print goes to the step's log with their numbers, and for each rank to `.executor_log.rank-N` beside it.
On one machine a step has one process, however many replicas it asks for.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from functools import partial
from types import TracebackType
from typing import IO, Self

from marin_rules.clusters.slurm.allocation import Allocation
from marin_rules.plans.frozen import FrozenPlan, FrozenStep, Run
from marin_rules.state.status import LOG_FILE
from marin_rules.storage.files import make_directory, write_atomic
from marin_rules.storage.objects.growing import GrowingObject
from marin_rules.storage.patience import patiently
from marin_rules.storage.private_files import read_within
from marin_rules.storage.regular_files import open_to_append
from marin_rules.urls import is_url
from marin_rules.worker.noted_signals import noted_stop_signal
from marin_rules.worker.step_call import Outcome

_LABEL = re.compile(rb" *([0-9]+): ?")
"""What `srun --label` puts before a line."""


def runs_in_ranks(step: FrozenStep) -> bool:
    """Whether this process has the machines for all replicas of the step."""
    allocation = Allocation.current()
    return (
        step.machines is not None
        and step.machines.replicas > 1
        and allocation is not None
        and allocation.node_count > 1  # As many as it asks for, or as a profile says.
    )


def run_ranks(plan: FrozenPlan, step: FrozenStep) -> Outcome:
    """Run the step on all machines of this job, and wait for all of them."""
    allocation = Allocation.current()
    assert allocation is not None
    reports = os.path.join("ranks", f"{step.digest}-{secrets.token_hex(4)}")
    command = _command(plan, step, allocation, os.path.join(plan.run.directory, reports))
    # The ranks are told to stop as well, and may have something to write yet: this process waits for their end. (A
    # handler and not SIG_IGN, which srun would inherit.)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as srun:
        assert srun.stdout is not None
        with RankLogs(step.output_path) as logs:
            for line in srun.stdout:
                logs.take(line)
        code = srun.wait()
    return _together(
        [_report(plan.run, os.path.join(reports, str(rank))) for rank in range(allocation.node_count)], code
    )


def _command(plan: FrozenPlan, step: FrozenStep, allocation: Allocation, reports: str) -> list[str]:
    count = str(allocation.node_count)
    cpus = [] if allocation.cpus_per_task is None else [f"--cpus-per-task={allocation.cpus_per_task}"]
    srun = ["srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", *cpus]
    srun += ["--kill-on-bad-exit=1", "--label", "--export=ALL"]
    module = [sys.executable, "-P", "-m", "marin_rules.worker.rank"]
    # A path below a relative prefix is relative to the working directory, which the ranks have from us.
    what = ["--digest", plan.digest, "--plan", plan.run.plan_path, "--step", step.key]
    return [*srun, *module, *what, "--report", reports]


def write_report(folder: str, rank: int, outcome: Outcome) -> None:
    """Tell the process that waits for the ranks what came of this one."""
    write_atomic(os.path.join(folder, str(rank)), json.dumps(asdict(outcome)).encode(), mode=0o600)


def _report(run: Run, name: str) -> Outcome | None:
    data, is_ours = read_within(run.directory, name)
    try:
        outcome = None if data is None else Outcome(**json.loads(data))
    except (ValueError, TypeError):
        return None
    # The exception will be unpickled.
    return outcome if outcome is None or is_ours else replace(outcome, exception=None)


def _together(reports: list[Outcome | None], code: int) -> Outcome:
    """What came of the step: the result of the first rank, or the first error."""
    failed = [(rank, report) for rank, report in enumerate(reports) if report is not None and report.error]
    told = [report for report in reports if report is not None]
    stopped_by = noted_stop_signal() or next((report.stopped_by for report in told if report.stopped_by), 0)
    if failed:
        rank, report = failed[0]
        error = f"rank {rank} of {len(reports)}: {report.error}"
        return Outcome(error=error, exception=report.exception, stopped_by=stopped_by)
    missing = [str(rank) for rank, report in enumerate(reports) if report is None]
    if code != 0 or missing:
        which = f"rank {', '.join(missing)} of {len(reports)} ended without a word" if missing else "its ranks failed"
        return Outcome(error=f"{which} (srun: exit code {code})", stopped_by=stopped_by)
    return replace(told[0], stopped_by=stopped_by, complete=all(report.complete for report in told))


class RankLogs:
    """The logs of all ranks, and what of them goes to the step's own log."""

    def __init__(self, output_path: str) -> None:
        self._path = os.path.join(output_path, LOG_FILE)
        self._files: dict[int, IO[bytes]] = {}
        """The logs themselves, or what goes to an object store in the end."""

        if not is_url(output_path):
            make_directory(output_path)

    def __enter__(self) -> Self:
        return self

    def take(self, line: bytes) -> None:
        """One line of srun's output: of a rank, or of srun itself."""
        label = _LABEL.match(line)
        if label is not None:
            rank, line = int(label[1]), line[label.end() :]
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
