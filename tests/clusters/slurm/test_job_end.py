"""Why Slurm tells a job to end, by what it says of the job at that moment."""

from __future__ import annotations

import pytest

from marin_rules.clusters.allocation import EndCause
from marin_rules.clusters.protocol import ClusterJob
from marin_rules.clusters.slurm.job_end import cause_of
from marin_rules.clusters.slurm.states import state_of


@pytest.mark.parametrize(
    ("word", "reason", "restarts", "cause"),
    [
        ("COMPLETING", "", 2, EndCause.CANCELLED),
        ("CANCELLED", "", 2, EndCause.CANCELLED),
        ("COMPLETING", "", 3, EndCause.STARTS_AGAIN),
        ("PENDING", "", 3, EndCause.STARTS_AGAIN),
        ("PENDING", "BeginTime", 2, EndCause.STARTS_AGAIN),
        ("COMPLETING", "TimeLimit", 2, EndCause.TIME_LIMIT),
        ("TIMEOUT", "", 2, EndCause.TIME_LIMIT),
        ("RUNNING", "", 2, EndCause.SIGNAL),
        ("PREEMPTED", "", 2, EndCause.UNKNOWN),
    ],
)
def test_the_cause_of_a_signal(word: str, reason: str, restarts: int, cause: EndCause) -> None:
    job = ClusterJob("slurm", "7", state_of(word), word, reason=reason, restarts=restarts)
    assert cause_of(job, restarts=2) is cause


def test_a_job_that_is_not_listed_says_nothing() -> None:
    assert cause_of(None, restarts=0) is EndCause.UNKNOWN
