"""What is active, as leases, jobs and the registry of runs tell it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from marin_rules.active.active_step import ActiveStep, name_in
from marin_rules.active.survey import run_block
from marin_rules.clusters.protocol import ArrayTasks, BusyError, JobState, JobTag, RefusedError
from marin_rules.state.status import Status, status_path
from marin_rules.storage.leases.owner import Owner
from support.active_world import ActiveWorld, dead_here, tag_of, write_info
from support.lease_models.clock import elsewhere

LONG = 16 * 60.0
"""Longer than a driver or worker may be silent before it is taken for dead."""


def facts(found: ActiveStep) -> tuple[str, str | None, str, bool]:
    return found.step.name, None if found.job is None else found.job.id, found.node, found.lease is not None


def test_nothing_is_active(world: ActiveWorld) -> None:
    survey = world.look()
    assert (list(survey.runs), list(survey.steps), dict(survey.silent_clusters)) == ([], [], {})


def test_a_run_tells_what_is_done_and_what_is_left(world: ActiveWorld) -> None:
    plan = world.run("a", "b", "c")
    world.finish(world.work(plan.steps[0]), plan.steps[0], Status.SUCCESS)
    world.finish(world.work(plan.steps[1]), plan.steps[1], Status.FAILED)
    (active,) = world.look().runs
    assert (active.run.id, active.done, active.left, active.trouble) == (plan.run.id, 1, 2, None)
    assert [step.name for step in active.steps] == ["a", "b", "c"]
    assert list(world.look().steps) == []


def test_a_worker_has_its_step_for_as_long_as_its_lease_says(world: ActiveWorld) -> None:
    plan = world.run("a", "b")
    world.work(plan.steps[0], run=plan.run.id)
    world.clock.advance(30)
    (found,) = world.look().steps
    assert facts(found) == ("a", None, "node7", True)
    assert (found.run, found.attempt, found.seconds, found.silent_seconds) == (plan.run.id, 2, 30.0, None)
    world.clock.advance(100)
    (found,) = world.look().steps
    assert found.silent_seconds == 130.0


def test_two_runs_one_local_and_one_on_a_cluster(world: ActiveWorld) -> None:
    """Both want `a`, each below its own prefix; the numbers of jobs repeat from cluster to cluster."""
    local, remote = world.run("a"), world.run("a", "b", prefix="remote")
    world.work(local.steps[0], run=local.run.id)
    world.cloud.add("7", tag_of(remote, remote.steps[0]))
    world.grid.add("7", tag_of(remote, remote.steps[1]), JobState.WAITING, reason="Resources")
    survey = world.look()
    assert [facts(found) for found in survey.of_run(local.run.id)] == [("a", None, "node7", True)]
    first, second = survey.of_run(remote.run.id)
    assert facts(first) == ("a", "7", "node1", False)
    assert (first.is_queued, first.seconds) == (False, 61.0)
    assert facts(second) == ("b", "7", "", False)
    assert (second.is_queued, second.seconds) == (True, None)
    assert first.job is not None
    assert second.job is not None
    assert (first.job.cluster, second.job.cluster) == ("cloud", "grid")


def test_a_worker_in_a_job_is_one_active_step(world: ActiveWorld) -> None:
    plan = world.run("a")
    world.cloud.add("7", tag_of(plan, plan.steps[0]))
    world.work(plan.steps[0], run=plan.run.id, info={"cloud": {"job_id": 7}})
    (found,) = world.look().steps
    assert facts(found) == ("a", "7", "node1", True)
    assert found.recorded_job is not None
    assert (found.recorded_job.cluster, found.recorded_job.id) == ("cloud", "7")


@pytest.mark.parametrize(
    ("info", "holder"),
    [
        ({"grid": {"job_id": "8"}}, "8"),  # The second of two jobs that run.
        ({"cloud": {"job_id": "7"}}, "7"),
        ({"cloud": {"job_id": "8"}}, None),  # The same number on another cluster.
        ({}, None),  # A worker without a job; both jobs wait for its lease.
    ],
)
def test_the_lease_is_that_of_the_job_that_its_worker_names(
    info: dict[str, object], holder: str | None, world: ActiveWorld
) -> None:
    plan = world.run("a")
    world.cloud.add("7", tag_of(plan, plan.steps[0]))
    world.grid.add("8", tag_of(plan, plan.steps[0]))
    world.work(plan.steps[0], run=plan.run.id, info=info)
    with_lease = [None if one.job is None else one.job.id for one in world.look().steps if one.lease is not None]
    assert with_lease == [holder]


def test_a_job_that_lost_its_machine_has_its_worker_still(world: ActiveWorld) -> None:
    plan = world.run("a")
    world.cloud.add("7", tag_of(plan, plan.steps[0]), JobState.WAITING)
    world.work(plan.steps[0], run=plan.run.id, info={"cloud": {"job_id": "7"}})
    (found,) = world.look().steps
    assert facts(found) == ("a", "7", "", True)


def test_a_queued_job_has_not_the_lease_of_somebody_else(world: ActiveWorld) -> None:
    plan = world.run("a")
    world.cloud.add("7", tag_of(plan, plan.steps[0]), JobState.WAITING)
    world.work(plan.steps[0], run="another")
    queued, worked_on = world.look().steps
    assert facts(queued) == ("a", "7", "", False)
    assert (facts(worked_on), worked_on.run) == (("a", None, "node7", True), "another")


def test_jobs_that_have_ended_or_are_not_ours_are_not_active(world: ActiveWorld) -> None:
    plan = world.run("a")
    for number, state in enumerate(JobState):
        if not state.is_live:
            world.cloud.add(str(number), tag_of(plan, plan.steps[0]), state)
    world.cloud.add("99", None)  # A job of the same user that has nothing to do with us.
    assert list(world.look().steps) == []


def test_the_job_of_a_forgotten_run_is_found_by_its_tag(world: ActiveWorld) -> None:
    world.cloud.add("7", JobTag("gone-1", "parts%2Fa-123456", "0123456789ab"))
    (found,) = world.look().steps
    assert (found.step.name, found.step.key, found.step.output_path) == ("parts/a", "parts%2Fa-123456", None)
    assert (found.run, found.driver_is_gone) == ("gone-1", True)


@pytest.mark.parametrize("error", [BusyError("no answer"), RefusedError("not you")])
def test_a_cluster_that_does_not_answer_hides_nothing_else(error: BusyError, world: ActiveWorld) -> None:
    plan = world.run("a", "b")
    world.cloud.error = error
    world.grid.add("7", tag_of(plan, plan.steps[0]))
    world.work(plan.steps[1], run=plan.run.id)
    survey = world.look()
    assert survey.silent_clusters == {"cloud": str(error)}
    assert [found.step.name for found in survey.steps] == ["a", "b"]


def test_somebody_elses_run_is_not_called_driverless(world: ActiveWorld) -> None:
    """A colleague's worker has a step that we want; their registry is not ours to see."""
    plan = world.run("a")
    world.work(plan.steps[0], run="anns-run")
    (found,) = world.look().steps
    assert (found.run, found.driver_is_gone) == ("anns-run", False)


def test_a_step_outside_all_runs_is_found_at_its_path(world: ActiveWorld) -> None:
    plan = world.run("a", driver=dead_here())
    world.work(plan.steps[0], run=plan.run.id)
    world.registration(plan.run.id).unlink()
    survey = world.look()
    assert list(survey.steps) == []
    from marin_rules.active.lookup import find_steps

    (step,) = find_steps(survey, plan.steps[0].output_path)
    (found,) = survey.of_step(step)
    assert (found.node, found.run) == ("node7", plan.run.id)


# -- arrays --------------------------------------------------------------------------------------------------


def test_an_array_is_one_active_step_however_many_elements_it_has(world: ActiveWorld) -> None:
    plan = world.run("a")
    tag = replace(tag_of(plan, plan.steps[0]), tasks=ArrayTasks(1, 0))
    states = {JobState.WAITING: range(40, 1000), JobState.RUNNING: range(20, 40), JobState.DONE: range(20)}
    world.cloud.add_array("7", tag, states)
    world.grid.add_array("7", replace(tag, tasks=ArrayTasks(1, 1000)), {JobState.WAITING: range(5)})
    first, second = world.look().steps
    assert (facts(first), first.is_queued, first.seconds) == (("a", "7", "node1", False), False, 61.0)
    assert (facts(second), second.is_queued, second.seconds) == (("a", "7", "", False), True, None)
    assert [len(first.elements), len(second.elements)] == [980, 5]
    assert {job.id for job in second.jobs} == {f"7_{element}" for element in range(5)}


def test_the_attempt_of_an_array_is_the_one_that_its_driver_began(world: ActiveWorld) -> None:
    """No worker holds the lease of the step while its tasks run; that alone is no sign of a next attempt."""
    plan = world.run("a")
    write_info(plan.steps[0].output_path, run={"id": plan.run.id, "attempt": 2, "tasks": 6})
    world.cloud.add_array("7", replace(tag_of(plan, plan.steps[0]), tasks=ArrayTasks(1, 0)), {JobState.RUNNING: [3]})
    (found,) = world.look().steps
    assert found.attempt == 2


def test_the_machines_of_an_array_are_counted(world: ActiveWorld) -> None:
    plan = world.run("a")
    tag = replace(tag_of(plan, plan.steps[0]), tasks=ArrayTasks(1, 0))
    for element in range(6):
        world.cloud.add(f"7_{element}", tag, nodes=f"cpu{element // 2}", element=element)
    (found,) = world.look().steps
    assert found.node == "3 nodes"


def test_the_element_that_has_the_lease_of_its_step_is_among_its_array(world: ActiveWorld) -> None:
    """The last one, which concludes the step."""
    plan = world.run("a")
    tag = replace(tag_of(plan, plan.steps[0]), tasks=ArrayTasks(1, 0))
    world.cloud.add_array("7", tag, {JobState.RUNNING: [3, 4]})
    world.work(plan.steps[0], run=plan.run.id, info={"cloud": {"job_id": "7_4"}})
    (found,) = world.look().steps
    assert facts(found) == ("a", "7", "node1", True)


def test_the_array_of_a_forgotten_run_is_found_by_its_tag(world: ActiveWorld) -> None:
    tag = JobTag("gone-1", "parts%2Fa-123456", "0123456789ab", ArrayTasks(1, 0))
    world.cloud.add_array("7", tag, {JobState.RUNNING: range(3)})
    (found,) = world.look().steps
    assert (found.step.name, found.run, len(found.elements)) == ("parts/a", "gone-1", 3)


# -- what is left of dead runs -------------------------------------------------------------------------------


def test_a_run_whose_driver_died_is_left_over_once_nothing_of_it_is_active(world: ActiveWorld) -> None:
    plan = world.run("a", driver=dead_here())
    assert [run.id for run in world.look().leftovers] == [plan.run.id]
    world.work(plan.steps[0], run=plan.run.id)
    assert world.look().leftovers == []
    world.clock.advance(LONG)
    survey = world.look()
    assert [run.id for run in survey.leftovers] == [plan.run.id]
    rest = survey.without(survey.leftovers)
    assert (list(rest.runs), list(rest.steps)) == ([], [])


def test_a_run_with_a_job_is_never_left_over(world: ActiveWorld) -> None:
    plan = world.run("a", driver=dead_here())
    world.cloud.add("7", tag_of(plan, plan.steps[0]), JobState.WAITING)
    world.clock.advance(100 * LONG)
    assert world.look().leftovers == []


def test_nothing_is_left_over_while_a_cluster_is_silent(world: ActiveWorld) -> None:
    world.run("a", driver=dead_here())
    world.grid.error = BusyError("no answer")
    assert world.look().leftovers == []


@pytest.mark.parametrize(
    ("driver", "silence", "is_dead"),
    [
        ("here", 100 * LONG, False),  # Its process can be seen, however long it was suspended.
        ("elsewhere", 800.0, False),
        ("elsewhere", LONG, True),
        ("before a restart", 170.0, False),
        ("before a restart", 190.0, True),
    ],
)
def test_which_silence_means_that_a_driver_is_dead(
    driver: str, silence: float, is_dead: bool, world: ActiveWorld
) -> None:
    owners = {
        "here": Owner.current(),
        "elsewhere": elsewhere("login7"),
        "before a restart": replace(Owner.current(), boot_id="another"),
    }
    world.run("a", driver=owners[driver])
    world.clock.advance(silence)
    assert bool(world.look().leftovers) == is_dead


# -- what is damaged -----------------------------------------------------------------------------------------


def test_a_plan_that_is_gone_is_the_trouble_of_its_run_alone(world: ActiveWorld) -> None:
    broken, whole = world.run("a"), world.run("b", prefix="second")
    Path(broken.run.plan_path).unlink()
    world.work(whole.steps[0], run=whole.run.id)
    survey = world.look()
    troubles = {active.run.id: active.trouble for active in survey.runs}
    assert troubles[whole.run.id] is None
    assert "is gone" in (troubles[broken.run.id] or "")
    assert [found.step.name for found in survey.steps] == ["b"]


def test_damaged_files_of_a_step_do_not_hide_it(world: ActiveWorld) -> None:
    plan = world.run("a", "b", "c")
    for step, damage in zip(plan.steps, ("not JSON", "[]", '{"run": [1], "name": 3}'), strict=True):
        world.work(step)
        (Path(step.output_path) / ".executor_info").write_text(damage)
    (Path(plan.steps[2].output_path) / ".executor_status.lock").write_text("cut")
    found = world.look().steps
    assert [one.step.name for one in found] == ["a", "b", "c"]
    assert [one.attempt for one in found] == [1, 1, 1]
    assert {one.run for one in found} == {plan.run.id}


def test_a_corrupt_status_is_left_and_not_done(world: ActiveWorld) -> None:
    plan = world.run("a")
    world.work(plan.steps[0])
    Path(status_path(plan.steps[0].output_path)).write_text("?")
    (active,) = world.look().runs
    assert (active.done, active.left) == (0, 1)


@pytest.mark.parametrize("run", [None, [], "x", 3])
def test_a_run_block_that_is_none(run: object, tmp_path: Path) -> None:
    write_info(str(tmp_path), run=run)
    assert run_block(str(tmp_path)) == {}


@pytest.mark.parametrize(
    ("key", "name"), [("a-123456", "a"), ("parts%2Fa%20b-123456", "parts/a b"), ("odd", "odd"), ("a-b-123456", "a-b")]
)
def test_the_name_in_a_key(key: str, name: str) -> None:
    assert name_in(key) == name
