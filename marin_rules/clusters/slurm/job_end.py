"""A job from within: why Slurm has told it to end, and how it requeues itself.

Slurm sends SIGTERM for every kind of end, and calls the job COMPLETING whatever comes next. What distinguishes them, as
seen with 22.05: when Slurm has requeued the job (preemption, a node set down, `scontrol requeue`), it has counted the
restart before it sends the signal; at the time limit it gives TimeLimit as the reason; a job that a person cancelled
has neither.
"""

from __future__ import annotations

from marin_rules.clusters.allocation import EndCause
from marin_rules.clusters.protocol import ClusterError, ClusterJob, JobState
from marin_rules.clusters.slurm.commands import run_command
from marin_rules.clusters.slurm.job_queue import SlurmQueue

_TIME_LIMIT = "TimeLimit"


def why_told_to_end(job_id: str, restarts: int) -> EndCause:
    """Ask Slurm about a job that had been restarted this often when it began."""
    try:
        job = SlurmQueue().jobs().get(job_id)
    except ClusterError:
        return EndCause.UNKNOWN
    return cause_of(job, restarts)


def cause_of(job: ClusterJob | None, restarts: int) -> EndCause:
    """What Slurm's record of a job says about a signal that the job received: pure."""
    if job is None:
        return EndCause.UNKNOWN
    if job.restarts > restarts or job.state is JobState.WAITING:
        return EndCause.STARTS_AGAIN
    if job.state is JobState.TIMED_OUT or job.reason == _TIME_LIMIT:
        return EndCause.TIME_LIMIT
    if job.state in (JobState.ENDING, JobState.CANCELLED):
        return EndCause.CANCELLED
    return EndCause.SIGNAL if job.is_live else EndCause.UNKNOWN


def start_again(job_id: str) -> None:
    """Make Slurm end a job of this user and requeue it; it may already be at its time limit."""
    run_command("scontrol", "requeue", job_id)
