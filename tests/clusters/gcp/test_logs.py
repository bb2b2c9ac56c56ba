"""Which lines of Cloud Logging are those of a job."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from marin_rules.clusters.gcp.logs import lines_filter

OF_JOB = 'logName="projects/lab/logs/batch_task_logs" AND labels.job_uid="train-1-uid"'


@pytest.mark.parametrize(
    ("task", "since", "more"),
    [
        (None, None, ""),
        (3, None, ' AND labels.task_id=~"train-1-uid-group0-3(/|$)"'),
        (0, datetime(2026, 11, 18, tzinfo=UTC), ' AND labels.task_id=~"train-1-uid-group0-0(/|$)"'
         ' AND timestamp>="2026-11-18T00:00:00+00:00"'),
    ],
)  # fmt: skip
def test_the_filter_names_the_job_and_its_task(task: int | None, since: datetime | None, more: str) -> None:
    assert lines_filter("lab", "train-1-uid", task, since) == OF_JOB + more
