"""The queues of several clusters, asked as one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from marin_rules.active import queues as module
from marin_rules.active.queues import Queues, job_words
from marin_rules.clusters.protocol import BusyError, Cluster, ClusterError, JobQueue, JobState, RefusedError
from support.fake_queue import FakeQueue


@pytest.fixture
def cloud() -> FakeQueue:
    return FakeQueue("cloud")


@pytest.fixture
def grid() -> FakeQueue:
    return FakeQueue("grid")


def cluster(name: str, open_queue: Callable[[], JobQueue]) -> Cluster:
    def none(*_: object) -> None:
        raise AssertionError("nobody asks for this")

    return Cluster(
        name,
        open_queue=lambda name: open_queue(),
        open_site=none,  # type: ignore[arg-type]
        first_file=none,  # type: ignore[arg-type]
        is_here=lambda name: True,
    )


def test_all_clusters_that_are_here_are_opened(cloud: FakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> JobQueue:
        raise ClusterError("no credentials")

    here = [cluster("cloud", lambda: cloud), cluster("moon", fail)]
    monkeypatch.setattr(module, "clusters_here", lambda name: here)
    queues = Queues.open()
    cloud.add("7", None)
    answer = queues.live_jobs()
    assert ([job.id for job in answer.jobs], dict(answer.silent)) == (["7"], {"moon": "no credentials"})
    assert [queues.can_ask(name) for name in ("cloud", "moon", "mars")] == [True, True, False]
    queues.close()
    assert cloud.is_closed


def test_no_cluster_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "clusters_here", lambda name: [])
    queues = Queues.open()
    assert list(queues.live_jobs().jobs) == []
    queues.cancel([])
    assert queues.look([]) == ({}, {})
    queues.close()


def test_the_same_number_on_two_clusters(cloud: FakeQueue, grid: FakeQueue) -> None:
    queues = Queues([cloud, grid])
    cloud.add("7", None)
    grid.add("7", None, JobState.DONE)
    found, busy = queues.look([("cloud", "7"), ("grid", "7"), ("grid", "8")])
    assert {name: job.state for name, job in found.items()} == {
        ("cloud", "7"): JobState.RUNNING,
        ("grid", "7"): JobState.DONE,
    }
    assert busy == {}
    queues.cancel([("grid", "7")])
    assert (cloud.cancelled, grid.cancelled) == ([], ["7"])
    assert [job.cluster for job in queues.live_jobs().jobs] == ["cloud"]


def test_one_that_is_busy_does_not_hide_the_other(cloud: FakeQueue, grid: FakeQueue) -> None:
    queues = Queues([cloud, grid])
    grid.add("7", None)
    cloud.error = BusyError("later")
    found, busy = queues.look([("cloud", "1"), ("grid", "7")])
    assert (list(found), busy) == ([("grid", "7")], {"cloud": "later"})


def test_one_that_refuses_is_an_error_after_the_other_was_asked(cloud: FakeQueue, grid: FakeQueue) -> None:
    queues = Queues([cloud, grid])
    grid.add("7", None)
    cloud.error = RefusedError("never")
    with pytest.raises(RefusedError, match="never"):
        queues.cancel([("cloud", "1"), ("grid", "7")])
    assert grid.cancelled == ["7"]
    with pytest.raises(RefusedError, match="never"):
        queues.look([("cloud", "1")])


def test_jobs_for_people() -> None:
    assert job_words([("grid", "7"), ("cloud", "3"), ("grid", "8")]) == "grid job 7, 8, cloud job 3"
