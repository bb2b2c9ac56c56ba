"""The log of a step: as it is, or followed until the step has ended."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from marin_rules.active.active_step import StepAddress
from marin_rules.active.clock import Clock, SystemClock
from marin_rules.active.queues import Queues
from marin_rules.active.survey import live_lease, run_block
from marin_rules.errors import MarinRulesError
from marin_rules.state.run_registry import find_run
from marin_rules.state.status import CorruptStatusError, Status, read_status
from marin_rules.state.step_log import log_path
from marin_rules.state.task_records import TaskPlace, read_layout
from marin_rules.storage.files import file_size, modified_time, read_part
from marin_rules.storage.leases.record import LeaseRecord
from marin_rules.urls import is_url

_LOCAL_SECONDS = 0.2
_REMOTE_SECONDS = 5.0
"""The pause between two looks at a log: a disk is quick, and a store charges for each request."""

_PIECE_BYTES = 1 << 20
"""How much of a log is in memory at a time."""

_CLUSTER_SECONDS = 5.0
"""The pause between two queries to clusters, which have others to serve."""

_ENDED = (Status.FAILED, Status.CANCELLED, Status.DEP_FAILED)


def rank_log_path(output_path: str, rank: int | None) -> str:
    """Where the log of a step is, or that of one rank of a step of several machines."""
    return log_path(output_path) if rank is None else f"{log_path(output_path)}.rank-{rank}"


def task_place(step: StepAddress, task: int) -> TaskPlace:
    """Where the record of one task of an array step is; an error that says which tasks there are."""
    assert step.output_path is not None
    layout = read_layout(step.output_path)
    if layout is None:
        raise MarinRulesError(f"step {step.name} has no tasks so far: leave out --task")
    if not 0 <= task < layout.tasks:
        raise MarinRulesError(f"step {step.name} has no task {task}: its tasks are 0 to {layout.tasks - 1}")
    return TaskPlace(step.output_path, layout.round, task)


class Log:
    """A log that grows, read in pieces: it may be larger than memory."""

    def __init__(self, path: str, *, tail: int | None = None) -> None:
        """`tail` lines from its present end, or from its beginning."""
        self.path = path
        self._read = 0 if tail is None else _start_of_tail(path, tail)

    @property
    def exists(self) -> bool:
        return modified_time(self.path) is not None

    def news(self) -> Iterator[bytes]:
        """What has been added since the last call, in pieces; nothing while there is no log."""
        while piece := read_part(self.path, self._read, _PIECE_BYTES):
            self._read += len(piece)
            yield piece
            if len(piece) < _PIECE_BYTES:
                return  # That was its end: a step that prints without pause must not hold up the reader.


def _start_of_tail(path: str, lines: int) -> int:
    """Where the last lines of a log begin. Searched from its end, so that nothing but the tail is read."""
    end = file_size(path) or 0
    start, missing = end, lines
    while start > 0:
        size = min(_PIECE_BYTES, start)
        piece = read_part(path, start - size, size) or b""
        if start == end:
            piece = piece.removesuffix(b"\n")  # It ends the last line and begins no other.
        for _ in range(piece.count(b"\n")):
            cut = piece.rindex(b"\n")
            missing -= 1
            if missing <= 0:
                return start - size + cut + 1
            piece = piece[:cut]
        start -= size
    return 0


def follow(
    step: StepAddress,
    log: Log,
    write: Callable[[bytes], None],
    queues: Queues,
    clock: Clock | None = None,
    *,
    task: TaskPlace | None = None,
) -> None:
    """Pass a log on while it grows, until the step or its `task` has ended; one that does not exist yet is waited for.

    A task that failed may be tried again: it has ended with its step.
    """
    clock = clock or SystemClock()
    end = _End(step, queues, clock)
    pause = _REMOTE_SECONDS if is_url(log.path) else _LOCAL_SECONDS
    while True:
        # Checked first, so that everything written until then is read below.
        has_ended = (task is not None and _is_done(task)) or end.has_come()
        for piece in log.news():
            write(piece)
        if has_ended:
            return
        clock.sleep(pause)


def _is_done(task: TaskPlace) -> bool:
    record = task.read()
    return record is not None and record.is_done


class _End:
    """Knows when a step has ended."""

    def __init__(self, step: StepAddress, queues: Queues, clock: Clock) -> None:
        assert step.output_path is not None
        self._path = step.output_path
        self._step = step
        self._queues = queues
        self._clock = clock
        self._lease: LeaseRecord | None = None
        self._lease_seen = 0.0
        self._asked = -math.inf
        self._clusters_with_jobs: set[str] = set()

    def has_come(self) -> bool:
        status = self._status()
        if status is Status.SUCCESS:
            return True
        if self._is_held() or self._is_queued():
            return False
        if status in _ENDED and run_block(self._path).get("id") in self._step.runs:
            return True
        # It is still to come, or to be tried again, as long as a run wants it.
        return not any(self._is_driven(run) for run in self._step.runs)

    def _status(self) -> Status | None:
        try:
            return read_status(self._path)
        except CorruptStatusError:
            return None

    def _is_held(self) -> bool:
        """Whether a worker that shows signs of life is working on it."""
        lease, now = live_lease(self._path), self._clock.monotonic()
        if lease != self._lease:
            self._lease, self._lease_seen = lease, now
        return lease is not None and now - self._lease_seen < lease.lifetime

    def _is_queued(self) -> bool:
        """Whether a cluster has a job for it; one that does not answer has it if it had one before."""
        now = self._clock.monotonic()
        if now - self._asked >= _CLUSTER_SECONDS:
            self._asked = now
            answer = self._queues.live_jobs()
            with_jobs = {job.cluster for job in answer.jobs if self._step.is_of(job.tag)}
            self._clusters_with_jobs = with_jobs | (self._clusters_with_jobs & answer.silent.keys())
        return bool(self._clusters_with_jobs)

    @staticmethod
    def _is_driven(run_id: str) -> bool:
        run = find_run(run_id)
        return run is not None and not run.driver_is_gone
