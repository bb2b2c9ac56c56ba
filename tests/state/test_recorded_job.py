"""The cluster job that a worker wrote down, whichever cluster it was."""

from __future__ import annotations

import pytest

from marin_rules.state.recorded_job import recorded_job


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"slurm": {"job_id": "7", "nodes": "n[1-2]", "partition": "gpu", "gpus": "0,1"}}, ("slurm", "7", "0,1")),
        ({"host": "n1", "gpus": ["0"], "cloud": {"job_id": 7, "nodes": "vm"}}, ("cloud", "7", "")),
        ({"host": "n1", "versions": {"python": "3.13"}}, None),
        ({"slurm": {"job_id": None}}, None),
        ({"slurm": "?"}, None),
        ({}, None),
        (None, None),
        ([], None),
    ],
)
def test_the_job_of_an_attempt(block: object, expected: tuple[str, str, str] | None) -> None:
    job = recorded_job(block)
    assert (None if job is None else (job.cluster, job.id, job.gpus)) == expected


def test_where_it_ran() -> None:
    slurm = recorded_job({"slurm": {"job_id": "7", "nodes": "n[1-2]", "partition": "gpu"}})
    cloud = recorded_job({"cloud": {"job_id": "7", "nodes": "vm"}})
    assert slurm is not None
    assert cloud is not None
    assert (slurm.place, cloud.place) == ("n[1-2] (slurm job 7, partition gpu)", "vm (cloud job 7)")
