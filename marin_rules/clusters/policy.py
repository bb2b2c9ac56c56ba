"""What to do about a job that was looked at: wait, call it done, submit it again, or give up. Pure.

`decide(history, observation)` is all that an executor knows about success and failure; it is the same for every
cluster, and for every state a cluster can report. Three rules are behind the table of cases:

- A job that lost its machine through no fault of its own is submitted again. That costs no retry; it has a limit of its
  own.
- What a person ended stays ended.
- The task that a job works on itself says whether it is done. Neither silence nor a job that is not (or no longer)
  known says anything about that, and a job that ended well is believed only if its task agrees.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from marin_rules.clusters.protocol import ClusterJob, JobState

MISSING_SECONDS = 60.0
"""How long an accepted job may be unknown to the cluster before it is taken for lost."""

SETTLING_SECONDS = 30.0
"""How long a task's own status may take to be seen here after its job has ended: network file systems cache."""

LEASE_LOST = os.EX_TEMPFAIL
"""The exit code of a job whose task somebody else has taken over: it did nothing wrong."""


class Absence(Enum):
    """Why there is no job to look at."""

    MISSING = "missing"
    """The cluster answers, and does not know it."""

    SILENT = "silent"
    """The cluster does not answer."""


class TaskWord(Enum):
    """What the task of a job says about itself, wherever the job is."""

    NOTHING = "nothing"
    """It is not done, or was not asked, or has no status of its own: several tasks in one job."""

    DONE = "done"
    STOPPED = "stopped"
    """A stop signal ended it in this very job."""

    FAILED = "failed"


@dataclass(frozen=True)
class History:
    """What was known about a job before it was looked at. Times are those of the observations."""

    name: str
    """What people call the task."""

    cluster: str
    """The word before a job's id: `slurm`."""

    title: str
    """What people call the cluster: `Slurm`."""

    job: str
    """The job's id."""

    most_interruptions: int
    has_word: bool = True
    """The task itself says whether it is done. Without that, a job can be neither checked nor submitted again."""

    was_done_before: bool = False
    """The task said DONE before the job was submitted: it is done once more, and its status means nothing until
    then."""

    is_ours: bool = True
    """Whether the job belongs to this run, and not to another whose job was found and is waited for."""

    interruptions: int = 0
    """Interruptions of the task, in all of its jobs in this run."""

    restarts: int = 0
    """How often the cluster has restarted this very job, as far as seen."""

    state: JobState | None = None
    nodes: str = ""
    missing_since: float | None = None
    ended_since: float | None = None

    def of_next_job(self, job: str, *, restarts: int = 0, is_ours: bool = True) -> History:
        """The history of another job for the same task, which may have been started again before we knew of it."""
        return replace(
            self,
            job=job,
            is_ours=is_ours,
            restarts=restarts,
            state=None,
            nodes="",
            missing_since=None,
            ended_since=None,
        )


@dataclass(frozen=True)
class Observation:
    """A look at a job."""

    job: ClusterJob | Absence
    now: float
    task: TaskWord = TaskWord.NOTHING
    """Determined only if the job is not alive: it may cost a request."""

    made_progress: bool = False
    """The task has written something that its next job continues from. Determined only if a job has ended badly."""


@dataclass(frozen=True)
class Wait:
    """Look again later."""

    history: History
    notices: Sequence[str] = ()


@dataclass(frozen=True)
class Succeed:
    """The task is done."""

    history: History
    by_this_job: bool
    """False if only its own status says so: somebody else may have done it."""

    notices: Sequence[str] = ()


@dataclass(frozen=True)
class Again:
    """Submit the task again. Costs no retry."""

    history: History
    notices: Sequence[str]


@dataclass(frozen=True)
class Fail:
    """Report a failure, which costs a retry."""

    history: History
    reason: str
    may_retry: bool = True
    """False if no further attempt should be made."""

    job_lives: bool = False
    """The job has to be ended: the cluster would restart it again and again."""

    notices: Sequence[str] = ()


type Decision = Wait | Succeed | Again | Fail


def decide(history: History, observation: Observation) -> Decision:
    """What to do, and what to remember for the next look."""
    job = observation.job
    if isinstance(job, Absence):
        return _decide_without_job(history, observation, job)
    history = replace(history, missing_since=None)
    history, notices = _with_restarts(history, job)
    if job.is_live:
        return _decide_on_live_job(history, job, notices)
    decision = _decide_on_ended_job(history, observation, job)
    return replace(decision, notices=(*notices, *decision.notices))


def _decide_without_job(history: History, observation: Observation, absence: Absence) -> Decision:
    if observation.task is TaskWord.DONE and history.has_word and not history.was_done_before:
        return Succeed(history, by_this_job=False)
    if absence is Absence.SILENT:
        return Wait(history)
    since = observation.now if history.missing_since is None else history.missing_since
    history = replace(history, missing_since=since)
    if observation.now - since < MISSING_SECONDS:
        return Wait(history)
    if history.has_word:
        return _interrupted(history, f"{_job(history)} is no longer known to {history.title}")
    return Fail(history, f"{_job(history)} is no longer known to {history.title}")


def _with_restarts(history: History, job: ClusterJob) -> tuple[History, tuple[str, ...]]:
    """Count how often the cluster itself has restarted the job since the last look."""
    new = job.restarts - history.restarts
    if new <= 0 or not history.has_word:
        return history, ()
    counted = replace(history, interruptions=history.interruptions + new, restarts=job.restarts, state=None)
    where = history.nodes or "its machine"
    return counted, (f"again  {history.name}: taken off {where}, queued again by {history.title}{_count(counted)}",)


def _decide_on_live_job(history: History, job: ClusterJob, notices: tuple[str, ...]) -> Decision:
    """Report what happens to it. One that the cluster restarts again and again is finally ended."""
    if history.interruptions > history.most_interruptions:
        reason = _too_often(history, f"{_job(history)} was taken off its machine")
        return Fail(history, reason, may_retry=False, job_lives=True, notices=notices)
    if job.state is JobState.RUNNING and history.state is not JobState.RUNNING and history.has_word:
        where = f" on {job.nodes}" if job.nodes else ""
        notices = (*notices, f"start  {history.name}{where}")
    return Wait(replace(history, state=job.state, nodes=job.nodes or history.nodes, ended_since=None), notices)


def _decide_on_ended_job(history: History, observation: Observation, job: ClusterJob) -> Succeed | Again | Fail | Wait:
    if job.state is JobState.DONE:
        return _decide_on_good_end(history, observation)
    if observation.task is TaskWord.DONE and history.has_word and not history.was_done_before:
        return Succeed(history, by_this_job=False)  # What happened to the job came after that.
    where = f" on {job.nodes}" if job.nodes else ""
    if history.has_word and _is_interruption(history, observation, job):
        lost = job.state is JobState.FAILED and job.exit_code == LEASE_LOST
        what = f"lost its lease{where}" if lost else f"was {job.word}{where}"
        return _interrupted(history, f"{_job(history)} {what}")
    reason = f"{_job(history)} {_ENDS.get(job.state, 'failed')}{where}"
    return Fail(history, reason, may_retry=job.state is not JobState.CANCELLED)


_ENDS = {
    JobState.OUT_OF_MEMORY: "ran out of memory",
    JobState.TIMED_OUT: "reached its time limit",
    JobState.CANCELLED: "was cancelled",
    JobState.INTERRUPTED: "lost its machine",
}


def _decide_on_good_end(history: History, observation: Observation) -> Succeed | Fail | Wait:
    if not history.has_word or observation.task is TaskWord.DONE:
        return Succeed(history, by_this_job=True)
    since = observation.now if history.ended_since is None else history.ended_since
    history = replace(history, ended_since=since)
    if observation.now - since < SETTLING_SECONDS:
        return Wait(history)
    return Fail(history, f"{_job(history)} succeeded, but the step's status does not say so")


def _is_interruption(history: History, observation: Observation, job: ClusterJob) -> bool:
    """Whether a job ended through no fault of its task."""
    match job.state:
        case JobState.INTERRUPTED:
            return True
        case JobState.TIMED_OUT:
            return observation.made_progress
        case JobState.FAILED if job.exit_code == LEASE_LOST:
            return True
        case JobState.FAILED:  # A signal came before the cluster ended the job: a warning, or a grace period.
            return observation.task is TaskWord.STOPPED and observation.made_progress
        case JobState.CANCELLED:  # Along with the run that it belonged to, not because of us.
            return not history.is_ours
    return False


def _interrupted(history: History, what: str) -> Again | Fail:
    history = replace(history, interruptions=history.interruptions + 1)
    if history.interruptions > history.most_interruptions:
        return Fail(history, _too_often(history, what), may_retry=False)
    return Again(history, (f"again  {history.name}: {what}; submitted again{_count(history)}",))


def _too_often(history: History, what: str) -> str:
    most = history.most_interruptions
    return f"{what}; interruptions so far: {history.interruptions}, allowed: {most}"


def _count(history: History) -> str:
    return f" ({history.interruptions} of at most {history.most_interruptions})"


def _job(history: History) -> str:
    return f"{history.cluster} job {history.job}"
