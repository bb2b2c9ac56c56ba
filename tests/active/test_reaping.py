"""What is left of dead runs: which jobs and slices are told of, and which are never touched."""

from __future__ import annotations

from marin_rules.active.reaping import leftovers
from marin_rules.clusters.protocol import ClusterJob, Extra, JobState, JobTag


def tag(run: str, step: str = "train-1b2c3d") -> JobTag:
    return JobTag.of(run, step, f"gs://bucket/out/{step}")


def job(id: str, run: str, step: str = "train-1b2c3d") -> ClusterJob:
    return ClusterJob("cloud", id, JobState.RUNNING, "RUNNING", tag=tag(run, step))


def slice_of(id: str, run: str, step: str = "train-1b2c3d", state: str = "ACTIVE") -> tuple[str, Extra]:
    return "cloud", Extra(id, f"TPU slice {id}", state, tag(run, step))


def test_jobs_of_dead_runs_are_left_over_and_those_of_others_are_not() -> None:
    jobs = [job("1", "dead"), job("2", "alive"), job("3", "elsewhere")]
    found = leftovers(jobs, [], {"dead"}, {"alive"})
    assert [left.id for left in found] == ["1"]
    assert "the driver of run dead is dead" in found[0].why
    assert [left.id for left in leftovers(jobs, [], {"dead"}, {"alive"}, unknown_too=True)] == ["1", "3"]


def test_jobs_of_others_and_drivers_are_never_touched() -> None:
    jobs = [
        ClusterJob("cloud", "1", JobState.RUNNING, "RUNNING"),
        ClusterJob("cloud", "2", JobState.RUNNING, "RUNNING", tag=JobTag.of_driver("dead")),
    ]
    assert leftovers(jobs, [], {"dead"}, set(), unknown_too=True) == []


def test_a_slice_is_left_over_when_no_job_of_its_step_lives() -> None:
    slices = [slice_of("a", "alive"), slice_of("b", "alive", "other-4e5f6a", "SUSPENDED")]
    found = leftovers([job("1", "alive")], slices, set(), {"alive"})
    assert [left.words for left in found] == ["TPU slice b (SUSPENDED)"]


def test_a_slice_goes_with_the_job_that_is_ended() -> None:
    found = leftovers([job("1", "dead")], [slice_of("a", "dead")], {"dead"}, set())
    assert [left.id for left in found] == ["1", "a"]


def test_a_slice_that_another_run_took_over_is_kept() -> None:
    """Its tag is that of the run which made it; a job of the same step lives."""
    found = leftovers([job("2", "alive")], [slice_of("a", "dead")], {"dead"}, {"alive"})
    assert found == []
