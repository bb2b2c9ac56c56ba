"""Stopping steps and runs: whoever has them is asked to end, waited for, and what it could not write is written."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from marin_rules.active.lookup import find_steps
from marin_rules.active.settling import Stopped
from marin_rules.clusters.protocol import ArrayTasks, BusyError, ClusterError, JobState, JobTag, RefusedError
from marin_rules.errors import MarinRulesError
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.state.run_registry import forget
from marin_rules.state.status import Status, status_path
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.owner import Owner
from support.active_world import LIFETIME, ActiveWorld, FakeProcess, dead_here, tag_of
from support.lease_models.clock import elsewhere


def stop(world: ActiveWorld, step: FrozenStep) -> Stopped:
    survey = world.look()
    (address,) = find_steps(survey, step.output_path)
    return world.stopper().stop_step(survey, address)


def local_worker(world: ActiveWorld, plan: FrozenPlan, ends_with: Status | None = Status.CANCELLED) -> FakeProcess:
    """A process that has the first step, and that ends it so when it is asked to; None: without a word."""
    step = plan.steps[0]
    lease = world.work(step, run=plan.run.id)

    def end(number: signal.Signals) -> None:
        if ends_with is not None:
            world.finish(lease, step, ends_with)
        process.ended = True

    process = FakeProcess(pid=7, on_signal=end, clock=world.clock)
    world.processes[7] = process
    return process


def job_worker(world: ActiveWorld, plan: FrozenPlan, number: str = "7") -> Lease:
    """A worker in a job of a cluster that has the first step."""
    world.cloud.add(number, tag_of(plan, plan.steps[0]))
    return world.work(plan.steps[0], run=plan.run.id, info={"cloud": {"job_id": number}})


# -- processes of this machine -------------------------------------------------------------------------------


def test_a_process_is_asked_to_end_and_says_itself_how_it_did(world: ActiveWorld) -> None:
    plan = world.run("a", "b")
    process = local_worker(world, plan)
    assert stop(world, plan.steps[0]).status is Status.CANCELLED
    assert process.received == [signal.SIGTERM]
    assert process.is_closed
    assert (world.status(plan.steps[0]), world.is_held(plan.steps[0])) == ("CANCELLED", False)
    assert world.said == ["stopping a: asked process 7 to end"]


@pytest.mark.parametrize("status", [Status.SUCCESS, Status.FAILED])
def test_a_step_that_ends_before_it_is_stopped_keeps_its_status(status: Status, world: ActiveWorld) -> None:
    plan = world.run("a")
    local_worker(world, plan, ends_with=status)
    assert stop(world, plan.steps[0]).status is status
    assert world.status(plan.steps[0]) == status


def test_a_step_that_ends_between_look_and_stop_is_not_signalled(world: ActiveWorld) -> None:
    """Its process is at the next step by then."""
    plan = world.run("a")
    process = world.processes[7] = FakeProcess(7)
    lease = world.work(plan.steps[0], run=plan.run.id)
    survey = world.look()
    (address,) = find_steps(survey, plan.steps[0].output_path)
    world.finish(lease, plan.steps[0], Status.SUCCESS)
    assert world.stopper().stop_step(survey, address).status is Status.SUCCESS
    assert process.received == []


def test_what_a_process_could_not_write_is_written_once_its_lease_has_expired(world: ActiveWorld) -> None:
    plan = world.run("a")
    local_worker(world, plan, ends_with=None)
    began = world.clock.monotonic()
    assert stop(world, plan.steps[0]).status is Status.CANCELLED
    assert (world.status(plan.steps[0]), world.is_held(plan.steps[0])) == ("CANCELLED", False)
    assert LIFETIME <= world.clock.monotonic() - began < LIFETIME + 5
    last = "stopping a: its worker could not give its lease back, waiting for it to expire (at most 90 s)"
    assert world.said[-1] == last


def test_a_process_that_ignores_the_request_is_named(world: ActiveWorld) -> None:
    plan = world.run("a")
    world.processes[7] = FakeProcess(7, clock=world.clock)
    world.work(plan.steps[0], run=plan.run.id)
    with pytest.raises(MarinRulesError, match=r"process 7, the worker of step a, has not ended in 60 s; .*`kill -9 7`"):
        stop(world, plan.steps[0])
    assert world.status(plan.steps[0]) == "RUNNING"


def test_a_worker_whose_death_can_be_seen_holds_nothing_up(world: ActiveWorld) -> None:
    plan = world.run("a")
    world.work(plan.steps[0], dead_here(), run=plan.run.id)
    began = world.clock.monotonic()
    assert stop(world, plan.steps[0]).status is Status.CANCELLED
    assert world.clock.monotonic() == began


def test_a_worker_out_of_reach_is_left_alone(world: ActiveWorld) -> None:
    plan = world.run("a")
    lease = world.work(plan.steps[0], run=plan.run.id)
    with pytest.raises(MarinRulesError) as refused:
        stop(world, plan.steps[0])
    assert str(refused.value) == (
        "step a runs on node7 (pid 7, user u), and not in a job of its own that you could cancel; run `marin-rules jobs"
        f" stop {plan.steps[0].key}` there"
    )
    lease.verify()
    assert world.status(plan.steps[0]) == "RUNNING"


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ("cloud", "in cloud job 12, which is not among your jobs; whoever started it can end it with"),
        ("moon", "in moon job 12, and this machine cannot ask moon to cancel it; run"),
    ],
)
def test_a_worker_in_a_job_that_we_cannot_cancel(cluster: str, said: str, world: ActiveWorld) -> None:
    """Somebody else's, or one of a cluster whose commands are not here."""
    plan = world.run("a")
    world.work(plan.steps[0], run="anns-run", info={cluster: {"job_id": "12"}})
    with pytest.raises(MarinRulesError, match=said):
        stop(world, plan.steps[0])
    assert world.status(plan.steps[0]) == "RUNNING"


# -- jobs of clusters ----------------------------------------------------------------------------------------


def test_a_job_is_cancelled_and_the_step_with_it(world: ActiveWorld) -> None:
    plan = world.run("a", "b")
    lease = job_worker(world, plan)
    world.grid.add("7", tag_of(plan, plan.steps[1]))  # The same number, but not the same job.

    def cancel(number: str) -> None:
        world.finish(lease, plan.steps[0], Status.CANCELLED)
        world.cloud.play(number, JobState.ENDING)
        world.clock.after(5, lambda: world.cloud.play(number))

    world.cloud.on_cancel = cancel
    assert stop(world, plan.steps[0]).status is Status.CANCELLED
    assert (world.cloud.cancelled, world.grid.cancelled) == (["7"], [])
    assert world.said == ["stopping a: cancelled cloud job 7"]
    assert world.cloud.known["7"].state is JobState.CANCELLED


def test_a_job_that_waits_leaves_a_cancelled_step(world: ActiveWorld) -> None:
    """Whatever an earlier attempt had come to."""
    plan = world.run("a")
    world.finish(world.work(plan.steps[0]), plan.steps[0], Status.FAILED)
    world.cloud.add("7", tag_of(plan, plan.steps[0]), JobState.WAITING)
    assert stop(world, plan.steps[0]).status is Status.CANCELLED
    assert world.status(plan.steps[0]) == "CANCELLED"


@pytest.mark.parametrize(
    ("state", "written", "expected"),
    [
        (JobState.DONE, Status.SUCCESS, Status.SUCCESS),
        (JobState.FAILED, Status.FAILED, Status.FAILED),
        # Its processes were killed before its worker knew why, and that looks like a failure.
        (JobState.CANCELLED, Status.FAILED, Status.CANCELLED),
        (JobState.CANCELLED, Status.SUCCESS, Status.SUCCESS),
    ],
)
def test_how_a_cancelled_job_ended(state: JobState, written: Status, expected: Status, world: ActiveWorld) -> None:
    plan = world.run("a")
    lease = job_worker(world, plan)

    def end(number: str) -> None:
        world.finish(lease, plan.steps[0], written)
        world.cloud.play(number, state)

    world.cloud.on_cancel = end
    assert stop(world, plan.steps[0]).status is expected
    assert world.status(plan.steps[0]) == expected


def test_an_array_is_cancelled_with_all_elements_that_have_not_ended(world: ActiveWorld) -> None:
    plan = world.run("a")
    tag = replace(tag_of(plan, plan.steps[0]), tasks=ArrayTasks(1, 0))
    world.cloud.add_array(
        "7", tag, {JobState.DONE: range(3), JobState.RUNNING: range(3, 6), JobState.WAITING: range(6, 500)}
    )

    def cancel(number: str) -> None:
        if world.cloud.known[number].state is JobState.WAITING:
            del world.cloud.known[number]  # As if it had never been.
        else:
            world.clock.after(5, lambda: world.cloud.play(number))

    world.cloud.on_cancel = cancel
    assert stop(world, plan.steps[0]).status is Status.CANCELLED
    assert world.cloud.cancelled == [f"7_{element}" for element in range(3, 500)]
    assert {job.state for job in world.cloud.known.values()} == {JobState.DONE, JobState.CANCELLED}
    assert world.said == ["stopping a: cancelled cloud job 7"]


@pytest.mark.parametrize(
    ("state", "written", "expected"),
    [
        (JobState.DONE, Status.SUCCESS, Status.SUCCESS),
        (JobState.FAILED, Status.FAILED, Status.FAILED),
        (JobState.CANCELLED, Status.FAILED, Status.CANCELLED),
    ],
)
def test_how_the_element_ended_that_had_the_lease_of_its_step(
    state: JobState, written: Status, expected: Status, world: ActiveWorld
) -> None:
    plan = world.run("a")
    tag = replace(tag_of(plan, plan.steps[0]), tasks=ArrayTasks(1, 0))
    world.cloud.add_array("7", tag, {JobState.RUNNING: [4]})
    lease = world.work(plan.steps[0], run=plan.run.id, info={"cloud": {"job_id": "7_4"}})

    def end(number: str) -> None:
        world.finish(lease, plan.steps[0], written)
        world.cloud.play(number, state)

    world.cloud.on_cancel = end
    assert stop(world, plan.steps[0]).status is expected


def test_of_elements_that_do_not_end_a_few_are_named(world: ActiveWorld) -> None:
    plan = world.run("a")
    tag = replace(tag_of(plan, plan.steps[0]), tasks=ArrayTasks(1, 0))
    world.cloud.add_array("7", tag, {JobState.RUNNING: range(500)})
    world.cloud.on_cancel = lambda number: world.cloud.play(number, JobState.ENDING)
    with pytest.raises(MarinRulesError, match=r"600 s: cloud job 7_0 \(ENDING\), .*7_9 \(ENDING\) and 490 more; stop"):
        stop(world, plan.steps[0])


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_job_that_ends_between_look_and_stop(is_forgotten: bool, world: ActiveWorld) -> None:
    plan = world.run("a")
    lease = job_worker(world, plan)
    survey = world.look()
    (address,) = find_steps(survey, plan.steps[0].output_path)
    world.finish(lease, plan.steps[0], Status.SUCCESS)
    world.cloud.play("7", JobState.DONE)
    if is_forgotten:
        del world.cloud.known["7"]
    assert world.stopper().stop_step(survey, address).status is Status.SUCCESS
    assert world.status(plan.steps[0]) == "SUCCESS"


def test_a_silent_cluster_is_waited_for_and_told_of_once(world: ActiveWorld) -> None:
    plan = world.run("a")
    lease = job_worker(world, plan)

    def answer_again() -> None:
        world.cloud.error = None
        world.finish(lease, plan.steps[0], Status.CANCELLED)
        world.cloud.play("7")

    def fall_silent(number: str) -> None:
        world.cloud.error = BusyError("no answer for 20 s")
        world.clock.after(120, answer_again)

    world.cloud.on_cancel = fall_silent
    assert stop(world, plan.steps[0]).status is Status.CANCELLED
    assert world.said == [
        "stopping a: cancelled cloud job 7",
        "waiting for cloud to report the jobs: no answer for 20 s",
    ]


def test_a_job_that_does_not_end_is_named_with_its_state(world: ActiveWorld) -> None:
    plan = world.run("a")
    job_worker(world, plan)
    world.cloud.on_cancel = lambda number: world.cloud.play(number, JobState.ENDING)
    with pytest.raises(MarinRulesError, match=r"not ended in 600 s: cloud job 7 \(ENDING\); stop the step again later"):
        stop(world, plan.steps[0])


def test_a_step_in_a_job_of_a_silent_cluster_is_left_alone(world: ActiveWorld) -> None:
    plan = world.run("a")
    lease = job_worker(world, plan)
    world.cloud.error = BusyError("no answer")
    with pytest.raises(MarinRulesError, match=r"^a runs in a Cloud job, and Cloud does not answer: try again later$"):
        stop(world, plan.steps[0])
    lease.verify()
    world.cloud.error, world.grid.error = None, BusyError("no answer")  # That of another cluster is no hindrance.
    world.cloud.on_cancel = lambda number: (world.finish(lease, plan.steps[0], Status.CANCELLED), world.cloud.play("7"))
    assert stop(world, plan.steps[0]).status is Status.CANCELLED


def test_a_run_without_a_driver_is_not_called_stopped_while_a_cluster_is_silent(world: ActiveWorld) -> None:
    plan = world.run("a", "b", driver=dead_here())
    process = local_worker(world, plan)
    world.grid.add("8", tag_of(plan, plan.steps[1]), JobState.WAITING)  # Which nobody hears of yet.
    world.grid.error = BusyError("no answer")
    with pytest.raises(MarinRulesError, match=rf"may have jobs on Grid, .*jobs stop {plan.run.id}` again"):
        world.stopper().stop_run(world.look(), plan.run.id)
    assert process.received == [signal.SIGTERM], "what is here is stopped"
    assert world.registered(plan.run.id) is not None
    world.grid.error = None
    world.stopper().stop_run(world.look(), plan.run.id)
    assert world.grid.cancelled == ["8"]
    assert world.registered(plan.run.id) is None


@pytest.mark.parametrize("error", [BusyError("no answer"), RefusedError("not yours"), ClusterError("?")])
def test_a_cancellation_that_fails_writes_nothing_and_cancels_the_rest(error: ClusterError, world: ActiveWorld) -> None:
    plan = world.run("a")
    job_worker(world, plan)
    world.grid.add("8", tag_of(plan, plan.steps[0]))
    survey = world.look()
    (address,) = find_steps(survey, "a")
    world.cloud.error = error
    with pytest.raises(type(error)):
        world.stopper().stop_step(survey, address)
    assert world.grid.cancelled == ["8"]
    assert world.status(plan.steps[0]) == "RUNNING"


def test_the_job_of_a_forgotten_run_is_cancelled_and_nothing_is_written(world: ActiveWorld) -> None:
    world.cloud.add("7", JobTag("gone-1", "a-123456", "0123456789ab"))
    survey = world.look()
    (address,) = find_steps(survey, "a")
    assert world.stopper().stop_step(survey, address) == Stopped(address, None)
    assert world.cloud.cancelled == ["7"]


# -- whoever is quicker --------------------------------------------------------------------------------------


def test_a_step_that_another_run_takes_up_at_once_is_theirs(world: ActiveWorld) -> None:
    plan = world.run("a")
    other = world.lease(plan.steps[0].output_path, elsewhere("node8"))
    first = job_worker(world, plan)

    def hand_over(number: str) -> None:
        world.finish(first, plan.steps[0], Status.CANCELLED)
        world.cloud.play(number)
        assert other.try_acquire() is None

    world.cloud.on_cancel = hand_over
    stopped = stop(world, plan.steps[0])
    assert stopped.status is None
    assert stopped.holder is not None
    assert stopped.holder.worker_id == other.record.worker_id if other.record else False
    other.verify()


def test_a_worker_that_only_passes_by_is_waited_for(world: ActiveWorld) -> None:
    """It takes the lease, finds that the step was stopped, and gives it back."""
    plan = world.run("a")
    passing = world.lease(plan.steps[0].output_path, elsewhere("node8"))
    first = job_worker(world, plan)

    def hand_over(number: str) -> None:
        world.finish(first, plan.steps[0], Status.CANCELLED)
        world.cloud.play(number)
        assert passing.try_acquire() is None
        world.clock.after(1, passing.release)

    world.cloud.on_cancel = hand_over
    assert stop(world, plan.steps[0]).status is Status.CANCELLED


# -- runs ----------------------------------------------------------------------------------------------------


def test_a_run_ends_with_its_driver_its_workers_and_its_jobs(world: ActiveWorld) -> None:
    plan = world.run("a", "b", "c", driver=replace(Owner.current(), pid=99, start_ticks=1))
    worker = local_worker(world, plan)
    world.cloud.add("7", tag_of(plan, plan.steps[1]), JobState.WAITING)

    def interrupt(number: signal.Signals) -> None:
        world.grid.add("3", tag_of(plan, plan.steps[2]))  # What it had just submitted.
        driver.ended = True

    driver = FakeProcess(99, on_signal=interrupt)
    world.processes[99] = driver
    stopped = world.stopper().stop_run(world.look(), plan.run.id)
    assert sorted((one.step.name, one.status) for one in stopped) == [
        ("a", Status.CANCELLED), ("b", Status.CANCELLED), ("c", Status.CANCELLED),
    ]  # fmt: skip
    assert (driver.received, worker.received) == ([signal.SIGINT], [signal.SIGTERM])
    assert (set(world.cloud.cancelled), set(world.grid.cancelled)) == ({"7"}, {"3"})
    assert world.registered(plan.run.id) is None
    assert f"interrupted the driver of {plan.run.id} (pid 99), waiting for its end" in world.said


def test_a_job_that_outlives_the_registration_of_its_run_is_one_step_still(world: ActiveWorld) -> None:
    """The driver ends and its run is forgotten, while the cluster still lists the job as ending."""
    plan = world.run("a", driver=replace(Owner.current(), pid=99, start_ticks=1))
    world.cloud.add("7", tag_of(plan, plan.steps[0]))
    world.cloud.on_cancel = lambda number: world.cloud.play(number, JobState.ENDING)

    def interrupt(number: signal.Signals) -> None:
        forget(plan.run)
        driver.ended = True
        world.clock.after(5, lambda: world.cloud.play("7", JobState.CANCELLED))

    driver = FakeProcess(99, on_signal=interrupt)
    world.processes[99] = driver
    stopped = world.stopper().stop_run(world.look(), plan.run.id)
    assert [(one.step.name, one.status) for one in stopped] == [("a", Status.CANCELLED)]


def test_a_worker_that_outlives_its_driver_for_a_while_is_asked_once(world: ActiveWorld) -> None:
    """A second signal would kill it before it has written its checkpoint."""
    plan = world.run("a", driver=replace(Owner.current(), pid=99, start_ticks=1))
    lease = world.work(plan.steps[0], run=plan.run.id)

    def end() -> None:
        world.finish(lease, plan.steps[0], Status.CANCELLED)
        worker.ended = True

    worker = FakeProcess(7, on_signal=lambda number: world.clock.after(20, end), clock=world.clock)
    driver = FakeProcess(99, on_signal=lambda number: setattr(driver, "ended", True))
    world.processes |= {7: worker, 99: driver}
    (stopped,) = world.stopper().stop_run(world.look(), plan.run.id)
    assert stopped.status is Status.CANCELLED
    assert worker.received == [signal.SIGTERM]
    assert worker.is_closed


def test_nothing_is_asked_to_end_if_one_worker_is_out_of_reach(world: ActiveWorld) -> None:
    plan = world.run("a", "b", driver=dead_here())
    process = local_worker(world, plan)
    world.work(plan.steps[1], replace(elsewhere("node9"), pid=9), run=plan.run.id)
    with pytest.raises(MarinRulesError, match="step b runs on node9"):
        world.stopper().stop_run(world.look(), plan.run.id)
    assert process.received == []
    assert process.is_closed


def test_a_run_of_another_machine_is_driven_there(world: ActiveWorld) -> None:
    """Its jobs end; its driver, and workers beside it, are out of reach."""
    plan = world.run("a", "b", driver=elsewhere("login7"))
    world.work(plan.steps[0], run=plan.run.id)
    world.cloud.add("7", tag_of(plan, plan.steps[1]), JobState.WAITING)
    with pytest.raises(MarinRulesError, match=rf"driven by process 7 on login7.*jobs stop {plan.run.id}` there"):
        world.stopper().stop_run(world.look(), plan.run.id)
    assert world.cloud.cancelled == ["7"]
    assert [world.status(step) for step in plan.steps] == ["RUNNING", "CANCELLED"]
    assert world.registered(plan.run.id) is not None


def test_a_driver_that_does_not_end_is_named(world: ActiveWorld) -> None:
    plan = world.run("a", driver=replace(Owner.current(), pid=99, start_ticks=1))
    world.processes[99] = FakeProcess(99, clock=world.clock)
    with pytest.raises(MarinRulesError, match=r"has not ended in 300 s; .* `kill -9 99` and stop the run again"):
        world.stopper().stop_run(world.look(), plan.run.id)
    assert world.processes[99].is_closed
    assert world.registered(plan.run.id) is not None


def test_a_stopped_run_leaves_another_run_alone(world: ActiveWorld) -> None:
    mine, other = world.run("a", driver=dead_here()), world.run("a", prefix="second")
    world.cloud.add("7", tag_of(mine, mine.steps[0]))
    world.cloud.add("8", tag_of(other, other.steps[0]))
    world.stopper().stop_run(world.look(), mine.run.id)
    assert world.cloud.cancelled == ["7"]
    assert world.registered(other.run.id) is not None
    assert world.status(other.steps[0]) is None


def test_a_step_with_a_damaged_status_is_not_overwritten(world: ActiveWorld) -> None:
    """Only a person can say whether its data are complete."""
    plan = world.run("a")
    world.cloud.add("7", tag_of(plan, plan.steps[0]), JobState.WAITING)
    world.work(plan.steps[0], dead_here())
    Path(status_path(plan.steps[0].output_path)).write_text("?")
    with pytest.raises(MarinRulesError, match="which is not a status"):
        stop(world, plan.steps[0])
    assert world.status(plan.steps[0]) == "?"
    assert not world.is_held(plan.steps[0])
