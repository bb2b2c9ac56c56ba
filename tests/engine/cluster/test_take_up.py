"""The executor for clusters, on a fake one: how jobs come into the queue, and which drivers submit them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from snakemake_interface_common.exceptions import WorkflowError

from marin_rules.clusters.prices import Price, price_fields
from marin_rules.clusters.protocol import BusyError, ClusterError, JobState, JobTag, RefusedError
from marin_rules.engine import plan_in_process
from marin_rules.errors import SettingsError
from marin_rules.plans.frozen import FrozenStep
from marin_rules.state.info import info_path
from marin_rules.state.run_registry import register
from marin_rules.state.status import Status
from marin_rules.state.step_lease import open_lease
from marin_rules.state.submission_turn import open_turn
from marin_rules.storage.leases.owner import Owner
from support.fake_cluster import ClusterWorld, Driver, FakeJob, FakeSite, write_status

DONE, FAILED = ["model"], ["model"]
NOTHING: list[str] = []


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


def test_a_job_is_told_its_price_if_there_is_one(world: ClusterWorld) -> None:
    driver = world.driver("model", "other")
    driver.submit("model")
    plan_in_process.current().site = FakeSite(hourly=Price(1.25, "2026-01-01", "a page"))
    driver.submit("other")
    first, second = (price_fields(world.cluster.requests[number].variables) for number in ("1", "2"))
    assert (first, second) == ({}, {"usd_an_hour": 1.25, "price_date": "2026-01-01"})


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
    def refuse(name: str | None) -> None:
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
    assert driver.said[-1] == f"found  model: fake job 1 of {driver.plan.run.id} already has this step"
    driver.cancel()
    assert world.cluster.cancelled == ["1"]


# -- several drivers -----------------------------------------------------------------------------------------


def test_the_job_of_a_driver_that_lives_is_waited_for_and_left_alone(world: ClusterWorld) -> None:
    one, two = world.driver("model"), world.driver("model")
    register(one.plan)
    one.submit("model")
    two.submit("model")
    assert len(world.cluster.known) == 1
    assert two.said == [f"found  model: fake job 1 of {one.plan.run.id} already has this step"]
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
    world.cluster.add("1", JobTag.of("older", step.key, step.output_path), JobState.ENDING)
    driver.submit("model")
    for _ in range(2):
        world.clock.time += 1.0
        assert driver.look() == ["model"]
    assert world.cluster.requests == {}
    assert world.clock.waited == []  # The threads that submit jobs have others to submit.
    world.cluster.play("1", JobState.FAILED)
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
    real, losses = cluster_takeup.held, [1]

    def held(turn: Any) -> Any:
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

    monkeypatch.setattr(cluster_takeup, "held", held)
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
    world.cluster.error = BusyError("no answer")
    assert driver.look() == ["model"]
    world.cluster.error = None
    world.cluster.play("1", JobState.DONE)
    assert driver.look() == []
    assert driver.results == (DONE, NOTHING)
