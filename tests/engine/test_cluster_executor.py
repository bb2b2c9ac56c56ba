"""The executor for clusters, on a fake one: how jobs come into the queue, what is done about each end, what is said."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from snakemake_interface_common.exceptions import WorkflowError

from marin_rules.clusters.policy import LEASE_LOST, MISSING_SECONDS, SETTLING_SECONDS
from marin_rules.clusters.protocol import BusyError, ClusterError, JobState, JobTag, RefusedError
from marin_rules.engine.cluster_notices import Notices
from marin_rules.errors import SettingsError
from marin_rules.plans.frozen import FrozenStep
from marin_rules.state.info import info_path
from marin_rules.state.run_registry import register
from marin_rules.state.status import Status
from marin_rules.state.step_lease import open_lease
from marin_rules.state.submission_turn import open_turn
from marin_rules.storage.leases.owner import Owner
from support.fake_cluster import ClusterWorld, Driver, FakeJob, write_attempt, write_status

DONE, FAILED = ["model"], ["model"]
NOTHING: list[str] = []


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterWorld:
    return ClusterWorld(tmp_path, monkeypatch)


@pytest.fixture
def driver(world: ClusterWorld) -> Driver:
    """With a job of the step `model` in the queue, its id 1."""
    driver = world.driver("model")
    driver.submit("model")
    driver.said.clear()
    return driver


def the_step(driver: Driver) -> FrozenStep:
    (step,) = driver.plan.steps
    return step


# -- submitting ----------------------------------------------------------------------------------------------


def test_a_step_is_submitted_followed_and_done(world: ClusterWorld) -> None:
    driver = world.driver("model")
    driver.submit("model")
    request = world.cluster.requests["1"]
    step = the_step(driver)
    assert (request.name, request.script, request.folder) == ("model", "run model", str(world.folder))
    assert request.tag == JobTag.of(driver.plan.run.id, step.key, step.output_path)
    assert request.resources == {"cpus_per_task": 3, "reservation": "course", "mem_mb": 500}
    assert request.variables["OMP_NUM_THREADS"] == "3"
    assert request.log == str(world.folder / ".snakemake" / "fake_logs" / "steps" / step.key / "{job}.log")
    assert driver.look() == ["model"]
    world.cluster.play("1", JobState.RUNNING)
    assert driver.look() == ["model"]
    log = Path(request.log.replace("{job}", "1"))
    log.parent.mkdir(parents=True)
    log.touch()
    write_status(step, Status.SUCCESS)
    world.cluster.play("1", JobState.DONE)
    assert driver.look() == []
    assert driver.results == (DONE, NOTHING)
    assert driver.said == ["queue  model: fake job 1, 3 cores", "start  model on node1"]
    assert not log.exists()


def test_nothing_is_left_beside_a_step_that_was_submitted(world: ClusterWorld) -> None:
    driver = world.driver("model")
    driver.submit("model")
    assert [path.name for path in (world.folder / "out").rglob("*.lock")] == []


def test_a_group_has_a_job_that_starts_snakemake(world: ClusterWorld) -> None:
    driver = world.driver("model")
    driver.jobs["group"] = FakeJob(None, 7)
    driver.submit("group")
    request = world.cluster.requests["1"]
    assert (request.tag, request.script) == (None, "snakemake --cores 3")
    assert request.resources["pool"] == "common"
    world.cluster.play("1", JobState.DONE)
    assert driver.look() == []
    assert driver.results == (["group"], NOTHING)


@pytest.mark.parametrize(
    ("end", "may_retry"), [(JobState.INTERRUPTED, True), (JobState.FAILED, True), (JobState.CANCELLED, False)]
)
def test_a_group_that_ends_badly_has_failed(world: ClusterWorld, end: JobState, may_retry: bool) -> None:
    driver = world.driver("model")
    driver.jobs["group"] = job = FakeJob(None, 7)
    driver.submit("group")
    world.cluster.play("1", end)
    assert driver.look() == []
    assert driver.results == (NOTHING, ["group"])
    assert (job.attempt <= job.restart_times) is may_retry


def test_settings_reach_the_job(world: ClusterWorld) -> None:
    driver = world.driver("model", no_requeue=True, exclude_failed_nodes="node3, node4,", logdir="elsewhere")
    driver.submit("model")
    request = world.cluster.requests["1"]
    assert (request.requeue, request.excluded_nodes) == (False, ("node3", "node4"))
    assert request.log.startswith(str(world.folder / "elsewhere"))


def test_a_cluster_that_cannot_be_opened_is_told_before_anything_runs(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise SettingsError("no library")

    monkeypatch.setattr(world, "cluster", None)
    monkeypatch.setattr(
        "marin_rules.engine.cluster_executor.open_cluster",
        lambda name: type("C", (), {"name": name, "open_queue": staticmethod(refuse)}),
    )
    with pytest.raises(WorkflowError, match="no library"):
        world.driver("model")


# -- what does not take the job ------------------------------------------------------------------------------


def test_a_job_that_is_wrong_in_itself_fails_at_once_and_for_good(world: ClusterWorld) -> None:
    world.cluster.refusals = [RefusedError("no such partition")]
    driver = world.driver("model")
    driver.submit("model")
    assert driver.results == (NOTHING, FAILED)
    assert driver.failures == ["could not be submitted: no such partition"]
    assert driver.jobs["model"].attempt > driver.jobs["model"].restart_times


def test_any_other_error_of_a_submission_may_be_retried(world: ClusterWorld) -> None:
    world.cluster.refusals = [OSError("disk full")]
    driver = world.driver("model")
    driver.submit("model")
    assert driver.failures == ["could not be submitted: disk full"]
    assert driver.jobs["model"].attempt == 1


def test_refusals_that_pass_are_waited_for_by_the_watch(world: ClusterWorld) -> None:
    world.cluster.refusals = [ClusterError("odd"), ClusterError("odd")]
    driver = world.driver("model")
    driver.submit("model")
    for seconds, submitted in ((0.0, 0), (0.9, 0), (0.2, 0), (1.9, 0), (0.2, 1)):
        world.clock.time += seconds
        assert driver.look() == ["model"]
        assert len(world.cluster.requests) == submitted
    assert [text for text in driver.said if text.startswith("wait")] == ["wait   model: odd; will try again for 300 s"]
    assert driver.failures == []


def test_patience_with_refusals_ends(world: ClusterWorld) -> None:
    world.cluster.refusals = [ClusterError("odd")] * 100
    driver = world.driver("model", refusal_patience=6)
    driver.submit("model")
    while driver.look():
        world.clock.time += 1.0
    assert driver.failures == ["could not be submitted: odd; tried again for 6 s"]
    assert len(world.cluster.refusals) == 97  # Tried after 0, 1 and 3 seconds.
    assert driver.jobs["model"].attempt > driver.jobs["model"].restart_times


def test_a_cluster_that_is_busy_is_asked_with_growing_pauses(world: ClusterWorld) -> None:
    world.cluster.refusals = [BusyError("busy")] * 7
    driver = world.driver("model")
    driver.submit("model")
    assert world.clock.waited == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert driver.said == ["wait   model: busy; will try again"] * 7 + ["queue  model: fake job 1, 3 cores"]


def test_a_submission_whose_answer_was_lost_is_found_in_the_queue(world: ClusterWorld) -> None:
    world.cluster.loses_answers = True
    driver = world.driver("model")
    driver.submit("model")
    assert len(world.cluster.known) == 1
    assert driver.said[-1] == f"found  model: fake job 1 of {driver.plan.run.id} is at it"
    driver.cancel()
    assert world.cluster.cancelled == ["1"]


# -- several drivers -----------------------------------------------------------------------------------------


def test_the_job_of_a_driver_that_lives_is_waited_for_and_left_alone(world: ClusterWorld) -> None:
    one, two = world.driver("model"), world.driver("model")
    register(one.plan)
    one.submit("model")
    two.submit("model")
    assert len(world.cluster.known) == 1
    assert two.said == [f"found  model: fake job 1 of {one.plan.run.id} is at it"]
    two.cancel()
    assert world.cluster.cancelled == []
    assert two.said[-1] == (f"left   model: fake job 1 belongs to run {one.plan.run.id}; `fake-cancel 1` would end it")
    one.cancel()
    assert world.cluster.cancelled == ["1"]


def test_a_job_that_ends_with_another_run_is_submitted_again_here(world: ClusterWorld) -> None:
    one, two = world.driver("model"), world.driver("model")
    register(one.plan)
    one.submit("model")
    two.submit("model")
    world.cluster.play("1", JobState.CANCELLED)
    assert two.look() == ["model"]
    assert list(world.cluster.requests) == ["1", "2"]
    assert two.said[-2].startswith("again  model: fake job 1 was CANCELLED on node1; submitted again (1 of at most 20)")
    assert one.look() == []
    assert one.results == (NOTHING, FAILED)


def test_the_job_of_a_driver_that_is_dead_becomes_ours(world: ClusterWorld) -> None:
    one, two = world.driver("model"), world.driver("model")
    register(one.plan)
    file = next((world.folder / "state").rglob(f"{one.plan.run.id}.json"))
    fields = json.loads(file.read_text())
    fields["driver"]["start_ticks"] += 1
    file.write_text(json.dumps(fields))
    one.submit("model")
    two.submit("model")
    two.cancel()
    assert world.cluster.cancelled == ["1"]


def test_restarts_before_a_job_was_found_are_not_counted(world: ClusterWorld) -> None:
    one, two = world.driver("model"), world.driver("model")
    one.submit("model")
    world.cluster.play("1", JobState.RUNNING, restarts=4)
    two.submit("model")
    two.look()
    assert [text.split(" ")[0] for text in two.said] == ["found", "start"]


def test_a_job_that_is_about_to_end_is_waited_for_before_another_is_submitted(world: ClusterWorld) -> None:
    driver = world.driver("model")
    step = the_step(driver)
    number = world.cluster.add(JobTag.of("older", step.key, step.output_path), JobState.ENDING)
    driver.submit("model")
    for _ in range(2):
        world.clock.time += 1.0
        assert driver.look() == ["model"]
    assert world.cluster.requests == {}
    assert world.clock.waited == []  # The threads that submit jobs have others to submit.
    world.cluster.play(number, JobState.FAILED)
    world.clock.time += 1.0
    assert driver.look() == ["model"]
    assert list(world.cluster.requests) == ["2"]


def test_only_one_driver_at_a_time_looks_and_submits(world: ClusterWorld) -> None:
    driver = world.driver("model")
    turn = open_turn(the_step(driver).output_path)
    assert turn.try_acquire() is None
    driver.submit("model")
    assert driver.look() == driver.look() == ["model"]
    assert world.cluster.known == {}
    turn.release()
    assert driver.look() == ["model"]
    assert list(world.cluster.requests) == ["1"]


def test_a_turn_that_was_lost_is_waited_for_anew(world: ClusterWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    from marin_rules.engine import cluster_takeup
    from marin_rules.storage.leases.lease import LeaseLostError

    driver = world.driver("model")
    real, losses = cluster_takeup.kept, [1]

    def kept(turn: Any) -> Any:
        manager = real(turn)
        if losses:
            losses.pop()

            def lost() -> None:
                raise LeaseLostError("held up", None)

            class Losing:
                def __enter__(self) -> Callable[[], None]:
                    manager.__enter__()
                    return lost

                def __exit__(self, *error: Any) -> None:
                    manager.__exit__(None, None, None)

            return Losing()
        return manager

    monkeypatch.setattr(cluster_takeup, "kept", kept)
    driver.submit("model")
    assert list(world.cluster.requests) == ["1"]


def test_a_step_that_somebody_is_at_is_waited_for_here(world: ClusterWorld) -> None:
    driver = world.driver("model")
    step = the_step(driver)
    lease = open_lease(step.output_path, Owner.current())
    assert lease.try_acquire() is None
    driver.submit("model")
    assert driver.look() == ["model"]
    assert driver.said[0].startswith("wait   model: held by ")
    write_status(step, Status.SUCCESS)
    lease.release()
    assert driver.look() == []
    assert driver.results == (DONE, NOTHING)
    assert world.cluster.known == {}


def test_a_step_that_somebody_gave_up_is_submitted(world: ClusterWorld) -> None:
    driver = world.driver("model")
    lease = open_lease(the_step(driver).output_path, Owner.current())
    assert lease.try_acquire() is None
    driver.submit("model")
    lease.release()
    assert driver.look() == ["model"]
    assert list(world.cluster.requests) == ["1"]


def test_a_step_that_was_done_meanwhile_is_not_submitted(world: ClusterWorld) -> None:
    driver = world.driver("model")
    write_status(the_step(driver), Status.SUCCESS)
    driver.submit("model")
    assert driver.look() == []
    assert driver.results == (DONE, NOTHING)
    assert world.cluster.known == {}


def test_another_version_on_the_same_path_is_no_success(world: ClusterWorld) -> None:
    driver = world.driver("model")
    step = the_step(driver)
    write_status(step, Status.SUCCESS)
    Path(info_path(step.output_path)).write_text(json.dumps({"version_digest": "another"}))
    driver.submit("model")
    assert driver.look() == []
    assert driver.results == (NOTHING, FAILED)
    assert "already holds another version" in driver.failures[0]
    assert driver.jobs["model"].attempt > driver.jobs["model"].restart_times


def test_a_step_that_is_forced_runs_although_it_is_done(world: ClusterWorld) -> None:
    driver = world.driver("model", forced=True)
    write_status(the_step(driver), Status.SUCCESS)
    driver.submit("model")
    assert list(world.cluster.requests) == ["1"]
    world.cluster.is_silent = True
    assert driver.look() == ["model"]
    world.cluster.is_silent = False
    world.cluster.play("1", JobState.DONE)
    assert driver.look() == []
    assert driver.results == (DONE, NOTHING)


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
    assert driver.failures == ["fake job 3 was NODE_FAIL on node1; that happened 3 times, and 2 are allowed"]
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
    assert driver.failures == ["fake job 1 was taken off its machine; that happened 2 times, and 1 are allowed"]


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
    assert driver.failures[0].startswith("fake job 1 ended well, but the step's status does not say so")


# -- silence -------------------------------------------------------------------------------------------------


def test_nothing_is_concluded_from_silence_which_is_told_once(world: ClusterWorld, driver: Driver) -> None:
    world.cluster.is_silent = True
    for _ in range(3):
        world.clock.time += 1000.0
        assert driver.look() == ["model"]
    world.cluster.is_silent = False
    assert driver.look() == ["model"]
    assert driver.said == ["fake does not answer, its jobs go on: no answer", "fake answers again"]


def test_a_step_that_ends_in_silence_is_done(world: ClusterWorld, driver: Driver) -> None:
    world.cluster.is_silent = True
    write_status(the_step(driver), Status.SUCCESS)
    assert driver.look() == []
    assert driver.results == (DONE, NOTHING)


def test_a_job_that_is_forgotten_is_submitted_again_after_a_minute(world: ClusterWorld, driver: Driver) -> None:
    world.cluster.forget("1")
    assert driver.look() == ["model"]
    world.clock.time += MISSING_SECONDS
    assert driver.look() == ["model"]
    assert list(world.cluster.requests)[-1] == "1"  # The fake counts anew: it knows no job.
    assert driver.said[0] == "again  model: fake job 1 was forgotten by The Fake; submitted again (1 of at most 20)"


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
    driver = world.driver("model")
    world.cluster.while_submitting = driver.cancel
    world.cluster.cannot_cancel = True
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
        world.cluster.is_silent = True

    driver = world.driver("model")
    world.cluster.loses_answers = True
    world.clock.meanwhile = [fall_silent]
    driver.submit("model")
    assert driver.said[-1] == "left   model: its job may be in the queue all the same: no answer"


def test_nothing_is_submitted_after_ctrl_c(world: ClusterWorld) -> None:
    driver = world.driver("model")
    world.cluster.refusals = [BusyError("busy")]
    world.clock.meanwhile = [driver.cancel]
    driver.submit("model")
    assert world.cluster.known == {}


def test_jobs_that_cannot_be_cancelled_are_named(world: ClusterWorld, driver: Driver) -> None:
    world.cluster.cannot_cancel = True
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
