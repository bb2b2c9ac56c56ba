"""A cluster's queue in memory, which fulfils the protocol. What happens to its jobs, the test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from marin_rules.clusters.protocol import (
    JOB,
    BusyError,
    ClusterError,
    ClusterJob,
    Extra,
    JobRequest,
    JobState,
    JobTag,
    element_id,
)


class FakeQueue:
    """See `protocol.JobQueue`."""

    most_elements = 8

    def __init__(self, cluster: str = "fake") -> None:
        self.cluster = cluster
        self.title = cluster.capitalize()
        self.requests: dict[str, JobRequest] = {}
        self.known: dict[str, ClusterJob] = {}
        self.forgotten: dict[str, ClusterJob] = {}
        """What only its accounting knows."""

        self.refusals: list[Exception] = []
        """What the next submissions are answered with."""

        self.loses_answers = False
        """The next job is taken, and nobody hears of it."""

        self.while_submitting: Callable[[], object] = lambda: None
        self.error: ClusterError | None = None
        """What questions and cancellations are answered with."""

        self.on_cancel: Callable[[str], object] = self.play
        """What a cancellation does to a job; by default it ends at once."""

        self.questions = 0
        """How often it was asked for its jobs."""

        self.page = ""
        """Where it shows what jobs print, with `{job}` in it; jobs print to files if that is nowhere."""

        self.printed: dict[str, list[str]] = {}
        """The lines of jobs that it keeps."""

        self.cancelled: list[str] = []
        self.beside: list[Extra] = []
        """What its jobs have had made."""

        self.is_closed = False

    def extras(self) -> list[Extra]:
        if self.error is not None:
            raise self.error
        return list(self.beside)

    def remove(self, extra: Extra) -> None:
        self.beside.remove(extra)

    # -- what tests do to jobs -------------------------------------------------------------------------------

    def add(self, id: str, tag: JobTag | None, state: JobState = JobState.RUNNING, **fields: Any) -> ClusterJob:
        """A job that somebody else has submitted."""
        self.known[id] = ClusterJob(self.cluster, id, state, "", seconds=61.0, tag=tag)
        self.play(id, state, **fields)
        return self.known[id]

    def add_array(self, number: str, tag: JobTag | None, states: Mapping[JobState, Sequence[int]]) -> list[ClusterJob]:
        """An array, by the states of its elements."""
        return [
            self.add(element_id(number, element), tag, state, element=element)
            for state, elements in states.items()
            for element in elements
        ]

    def play(self, id: str, state: JobState = JobState.CANCELLED, **fields: Any) -> None:
        """Let a job be in a state."""
        waits = state is JobState.WAITING
        shown = {"word": "PENDING" if waits else state.name, "nodes": "" if waits else "node1"}
        self.known[id] = replace(self.known[id], state=state, **{**shown, **fields})

    def forget(self, id: str, *, accounting: bool = False) -> None:
        job = self.known.pop(id)
        if accounting:
            self.forgotten[id] = job

    # -- the protocol ----------------------------------------------------------------------------------------

    def deal(self, tasks: Sequence[int]) -> list[list[int]]:
        """One array for each eight numbers, of which some tasks may be missing."""
        arrays: dict[int, list[int]] = {}
        for task in tasks:
            arrays.setdefault(task // self.most_elements, []).append(task)
        return list(arrays.values())

    def submit(self, request: JobRequest) -> str:
        if self.refusals:
            raise self.refusals.pop(0)
        number = str(len(self.known) + 1)
        if request.elements is None:
            self.add(number, request.tag, JobState.WAITING)
        else:
            self.add_array(number, request.tag, {JobState.WAITING: request.elements})
        self.requests[number] = request
        self.while_submitting()
        if self.loses_answers:
            self.loses_answers = False
            raise BusyError("no answer")
        return number

    def jobs(self) -> Mapping[str, ClusterJob]:
        self.questions += 1
        self._answer()
        return dict(self.known)

    def look(self, ids: Sequence[str]) -> Mapping[str, ClusterJob]:
        # With jobs that nobody asked for, as the protocol allows.
        return {**self.jobs(), **{id: self.forgotten[id] for id in ids if id in self.forgotten}}

    def cancel(self, ids: Sequence[str]) -> None:
        self._answer()
        for id in ids:
            self.cancelled.append(id)
            if id in self.known and self.known[id].is_live:
                self.on_cancel(id)

    def log_of(self, log: str, job: str) -> str:
        return self.page.format(job=job) if self.page else log.replace(JOB, job)

    def last_lines(self, job: str, count: int) -> list[str]:
        self._answer()
        return self.printed.get(job, [])[-count:]

    def advice(self, job: ClusterJob) -> str | None:
        return f"let {job.id} go" if job.reason == "Held" else None

    def cancel_command(self, ids: Sequence[str]) -> str:
        return f"{self.cluster}-cancel {' '.join(ids)}"

    def close(self) -> None:
        self.is_closed = True

    def _answer(self) -> None:
        if self.error is not None:
            raise self.error
