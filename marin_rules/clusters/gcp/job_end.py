"""Why Batch is ending a job, asked from within that job."""

from __future__ import annotations

from contextlib import closing

from marin_rules.clusters.allocation import EndCause
from marin_rules.clusters.gcp.job_queue import BatchQueue
from marin_rules.clusters.gcp.site import read_site
from marin_rules.clusters.protocol import JobState
from marin_rules.errors import MarinRulesError
from marin_rules.settings.cluster_file import cluster_name


def why_told_to_end(job_id: str) -> EndCause:
    """A job that a person cancels or deletes says so while it ends. Batch reports a lost machine only later."""
    name = cluster_name()
    try:
        site = None if name is None else read_site(name)
        if site is None:
            return EndCause.UNKNOWN
        with closing(BatchQueue(site)) as queue:
            job = queue.look([job_id]).get(job_id)
    except MarinRulesError:
        return EndCause.UNKNOWN
    is_cancelled = job is not None and job.state in (JobState.ENDING, JobState.CANCELLED)
    return EndCause.CANCELLED if is_cancelled else EndCause.UNKNOWN
