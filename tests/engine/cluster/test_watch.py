"""The executor for clusters, on a fake one: what is done about each end, what is said, and what Ctrl-C leaves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from marin_rules.clusters.policy import LEASE_LOST, MISSING_SECONDS, SETTLING_SECONDS
from marin_rules.clusters.protocol import BusyError, JobState
from marin_rules.engine.cluster_notices import Notices
from marin_rules.plans.frozen import FrozenStep
from marin_rules.state.status import Status
from support.fake_cluster import ClusterWorld, Driver, write_attempt, write_status

DONE, FAILED = ["model"], ["model"]
NOTHING: list[str] = []


def the_step(driver: Driver) -> FrozenStep:
    (step,) = driver.plan.steps
    return step


# -- ends ----------------------------------------------------------------------------------------------------


def test_an_interruption_costs_no_retry_and_has_a_bound(world: ClusterWorld) -> None:
    driver = world.driver("model", max_interruptions=2)
    driver.submit("model")
    job = driver.jobs["model"]
    for number in ("1", "2"):
        world.cluster.play(number, JobState.INTERRUPTED, word="NODE_FAIL")
        assert driver.look() == ["model"]
        assert (job.attempt, driver.failures) == (1, [])
    world.cluster.play("3", JobState.INTERRUPTED, word="NODE_FAIL")
    assert driver.look() == []
    assert driver.failures == ["fake job 3 was NODE_FAIL on node1; interruptions so far: 3, allowed: 2"]
    assert job.attempt > job.restart_times
    assert len(world.cluster.known) == 3


def test_a_job_that_the_cluster_starts_again_and_again_is_ended(world: ClusterWorld) -> None:
    driver = world.driver("model", max_interruptions=1)
    driver.submit("model")
    world.cluster.play("1", JobState.RUNNING)
    driver.look()
    for restarts, left in ((1, ["model"]), (2, [])):
        world.cluster.play("1", JobState.WAITING, restarts=restarts)
        assert driver.look() == left
    assert world.cluster.cancelled == ["1"]
    assert driver.failures == ["fake job 1 was taken off its machine; interruptions so far: 2, allowed: 1"]


@pytest.mark.parametrize(
    ("state", "progress", "stopped", "exit_code", "again"),
    [
        (JobState.TIMED_OUT, True, True, None, True),
        (JobState.TIMED_OUT, False, True, None, False),
        (JobState.FAILED, True, True, 1, True),
        (JobState.FAILED, False, True, 1, False),
        (JobState.FAILED, True, False, 1, False),
        (JobState.FAILED, False, False, LEASE_LOST, True),
        (JobState.OUT_OF_MEMORY, True, True, None, False),
    ],
)
def test_which_ends_are_submitted_again(
    world: ClusterWorld,
    driver: Driver,
    state: JobState,
    progress: bool,
    stopped: bool,
    exit_code: int | None,
    again: bool,
) -> None:
    write_attempt(the_step(driver), "1" if stopped else "0", progress=progress)
    world.cluster.play("1", state, exit_code=exit_code)
    assert driver.look() == (["model"] if again else [])
    assert len(world.cluster.known) == (2 if again else 1)
    assert driver.jobs["model"].attempt == 1
    assert len(driver.failures) == (0 if again else 1)


def test_what_a_person_cancels_stays_cancelled(world: ClusterWorld, driver: Driver) -> None:
    write_attempt(the_step(driver), "1", progress=True)
    world.cluster.play("1", JobState.CANCELLED)
    assert driver.look() == []
    assert driver.failures == ["fake job 1 was cancelled on node1"]
    assert driver.jobs["model"].attempt > driver.jobs["model"].restart_times


def test_a_job_that_left_no_word_is_told_with_its_last_one(world: ClusterWorld, driver: Driver) -> None:
    log = Path(world.cluster.requests["1"].log.replace("{job}", "1"))
    log.parent.mkdir(parents=True)
    log.write_text("starting\nbus error\n\n")
    world.cluster.play("1", JobState.FAILED)
    assert driver.look() == []
    assert driver.failures == [
        f"fake job 1 failed on node1; what the job itself printed is in {log}, at last: bus error"
    ]


def test_a_failure_that_the_step_tells_of_itself_is_short(world: ClusterWorld, driver: Driver) -> None:
    write_status(the_step(driver), Status.FAILED)
    world.cluster.play("1", JobState.FAILED)
    assert driver.look() == []
    assert driver.failures == ["fake job 1 failed on node1"]


def test_a_status_is_seen_late(world: ClusterWorld, driver: Driver) -> None:
    world.cluster.play("1", JobState.DONE)
    assert driver.look() == ["model"]
    world.clock.time += SETTLING_SECONDS - 1
    assert driver.look() == ["model"]
    write_status(the_step(driver), Status.SUCCESS)
    assert driver.look() == []
    assert driver.results == (DONE, NOTHING)


def test_a_job_that_ended_well_and_did_nothing_has_failed(world: ClusterWorld, driver: Driver) -> None:
    world.cluster.play("1", JobState.DONE)
    driver.look()
    world.clock.time += SETTLING_SECONDS
    assert driver.look() == []
    assert driver.failures[0].startswith("fake job 1 succeeded, but the step's status does not say so")


# -- silence -------------------------------------------------------------------------------------------------


def test_nothing_is_concluded_from_silence_which_is_told_once(world: ClusterWorld, driver: Driver) -> None:
    world.cluster.error = BusyError("no answer")
    for _ in range(3):
        world.clock.time += 1000.0
        assert driver.look() == ["model"]
    world.cluster.error = None
    assert driver.look() == ["model"]
    assert driver.said == ["fake does not answer, its jobs continue: no answer", "fake answers again"]


def test_a_step_that_ends_in_silence_is_done(world: ClusterWorld, driver: Driver) -> None:
    world.cluster.error = BusyError("no answer")
    write_status(the_step(driver), Status.SUCCESS)
    assert driver.look() == []
    assert driver.results == (DONE, NOTHING)


def test_a_job_that_is_forgotten_is_submitted_again_after_a_minute(world: ClusterWorld, driver: Driver) -> None:
    world.cluster.forget("1")
    assert driver.look() == ["model"]
    world.clock.time += MISSING_SECONDS
    assert driver.look() == ["model"]
    assert list(world.cluster.requests)[-1] == "1"  # The fake counts anew: it knows no job.
    assert driver.said[0] == "again  model: fake job 1 is no longer known to Fake; submitted again (1 of at most 20)"


def test_a_job_that_only_the_accounting_knows_has_ended_as_it_says(world: ClusterWorld, driver: Driver) -> None:
    world.cluster.play("1", JobState.CANCELLED)
    world.cluster.forget("1", accounting=True)
    assert driver.look() == []
    assert driver.failures == ["fake job 1 was cancelled on node1"]


def test_no_exception_ends_the_watch_and_each_is_told_once(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = world.driver("one", "two")
    driver.submit("one", "two")
    driver.said.clear()
    number = next(number for number, request in world.cluster.requests.items() if request.name == "one")
    real = world.cluster.look

    class Odd(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            if key == number:
                raise ValueError("no such thing")
            return super().get(key, default)

    monkeypatch.setattr(world.cluster, "look", lambda ids: Odd(real(ids)))
    write_status(driver.plan.by_key[driver.jobs["two"].wildcards.step], Status.SUCCESS)
    for job in world.cluster.known:
        world.cluster.play(job, JobState.DONE)
    for _ in range(3):
        assert driver.look() == ["one"]
    assert driver.results == (["two"], NOTHING)
    assert driver.said == [f"could not look at fake job {number}, will try again: ValueError('no such thing')"]


def test_why_a_job_waits_is_told_once_and_what_to_do_for_the_first(world: ClusterWorld) -> None:
    driver = world.driver("one", "two", "three")
    driver.submit("one", "two", "three")
    driver.said.clear()
    for number, reason in (("1", "Held"), ("2", "Held"), ("3", "Priority")):
        world.cluster.play(number, JobState.WAITING, reason=reason)
    driver.look()
    driver.look()
    assert [text.partition(": ")[2] for text in driver.said] == ["fake job 1 has Held: let 1 go", "fake job 2 has Held"]


# -- Ctrl-C --------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_what_was_submitted(world: ClusterWorld) -> None:
    driver = world.driver("one", "two")
    driver.submit("one", "two")
    driver.cancel()
    assert world.cluster.cancelled == ["1", "2"]
    assert driver.said[-1] == "cancelled fake jobs 1, 2"


def test_ctrl_c_leaves_jobs_alone_that_have_ended(world: ClusterWorld, driver: Driver) -> None:
    write_status(the_step(driver), Status.SUCCESS)
    world.cluster.play("1", JobState.DONE)
    driver.look()
    driver.cancel()
    assert world.cluster.cancelled == []
    assert driver.said == []


def test_ctrl_c_during_a_submission_ends_the_job_that_it_made(world: ClusterWorld) -> None:
    driver = world.driver("model")
    world.cluster.while_submitting = driver.cancel
    driver.submit("model")
    assert world.cluster.cancelled == ["1"]
    assert driver.look() == []
    assert driver.results == (NOTHING, NOTHING)


def test_ctrl_c_during_a_submission_names_a_job_that_cannot_be_cancelled(world: ClusterWorld) -> None:
    def cancel_in_vain() -> None:
        world.cluster.error = BusyError("no answer")
        driver.cancel()

    driver = world.driver("model")
    world.cluster.while_submitting = cancel_in_vain
    driver.submit("model")
    assert driver.said == ["could not cancel the jobs: no answer. Do it by hand: fake-cancel 1"]


def test_ctrl_c_ends_a_job_whose_submission_got_no_answer(world: ClusterWorld) -> None:
    driver = world.driver("model")
    world.cluster.loses_answers = True
    world.clock.meanwhile = [driver.cancel]
    driver.submit("model")
    assert world.cluster.cancelled == ["1"]


def test_ctrl_c_tells_of_a_job_that_may_be_in_a_silent_queue(world: ClusterWorld) -> None:
    def fall_silent() -> None:
        driver.cancel()
        world.cluster.error = BusyError("no answer")

    driver = world.driver("model")
    world.cluster.loses_answers = True
    world.clock.meanwhile = [fall_silent]
    driver.submit("model")
    assert driver.said[-1] == "left   model: its job may be in the queue anyway: no answer"


def test_nothing_is_submitted_after_ctrl_c(world: ClusterWorld) -> None:
    driver = world.driver("model")
    world.cluster.refusals = [BusyError("busy")]
    world.clock.meanwhile = [driver.cancel]
    driver.submit("model")
    assert world.cluster.known == {}


def test_jobs_that_cannot_be_cancelled_are_named(world: ClusterWorld, driver: Driver) -> None:
    world.cluster.error = BusyError("no answer")
    driver.cancel()
    assert driver.said == ["could not cancel the jobs: no answer. Do it by hand: fake-cancel 1"]


# -- the pace ------------------------------------------------------------------------------------------------


def test_the_queue_is_looked_at_more_and_more_seldom_until_something_happens(
    world: ClusterWorld, driver: Driver
) -> None:
    pauses = []
    for _ in range(30):
        driver.look()
        pauses.append(driver.executor.next_seconds_between_status_checks)
    assert pauses[0] < 1.0
    assert pauses == sorted(pauses)
    assert pauses[-1] == 15.0
    write_status(the_step(driver), Status.SUCCESS)
    world.cluster.play("1", JobState.DONE)
    driver.look()
    assert driver.executor.next_seconds_between_status_checks == 0.5


def test_the_end_closes_the_queue_and_removes_old_logs(world: ClusterWorld, driver: Driver) -> None:
    folder = world.folder / ".snakemake" / "fake_logs" / "steps"
    old, new = folder / "old" / "1.log", folder / "new" / "2.log"
    for log in (old, new):
        log.parent.mkdir(parents=True)
        log.touch()
    os.utime(old, (0, 0))
    driver.executor.shutdown()
    assert world.cluster.is_closed
    assert not old.parent.exists()
    assert new.exists()


def test_a_notice_is_said_once() -> None:
    said: list[str] = []
    notices = Notices(type("L", (), {"info": staticmethod(said.append)}))
    notices.tell_once("a")
    notices.tell_once("a")
    notices.tell("a")
    assert [text.split(" ")[1] for text in said] == ["a", "a"]
