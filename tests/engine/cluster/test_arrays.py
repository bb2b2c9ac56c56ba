"""Array steps on a fake cluster: which tasks are submitted when, what is decided about each, and what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marin_rules.clusters.protocol import BusyError, ClusterError, JobState
from marin_rules.plans.frozen import FrozenStep
from marin_rules.state.status import Status, read_status
from marin_rules.state.task_records import TaskPlace, TaskRecord, read_layout
from marin_rules.storage.leases.lease import Lease
from marin_rules.storage.leases.owner import Owner
from marin_rules.worker.array_step import end_if_all_done
from support.fake_cluster import ClusterWorld, Driver, write_status

NOTHING: list[str] = []


@pytest.fixture
def driver(world: ClusterWorld) -> Driver:
    """With an array of the step `parts` in the queue: six tasks, its id 1."""
    driver = world.driver("parts", tasks=6)
    driver.submit("parts")
    return driver


def the_step(driver: Driver) -> FrozenStep:
    (step,) = driver.plan.steps
    return step


def write_record(step: FrozenStep, task: int, status: Status, **fields: Any) -> None:
    """What the worker of a task has written."""
    layout = read_layout(step.output_path)
    assert layout is not None
    path = Path(TaskPlace(step.output_path, layout.round, task).record_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(TaskRecord(status, fields).to_bytes())


def finish(world: ClusterWorld, driver: Driver, *tasks: int, array: str = "1", first: int = 0) -> None:
    for task in tasks:
        write_record(the_step(driver), task, Status.SUCCESS, artifact=task)
        world.cluster.play(f"{array}_{task - first}", JobState.DONE)


def elements(world: ClusterWorld) -> list[list[int]]:
    """Which tasks each request was for."""
    found = []
    for request in world.cluster.requests.values():
        assert request.elements is not None
        assert request.tag is not None
        assert request.tag.tasks is not None
        found.append([request.tag.tasks.first + element for element in request.elements])
    return found


def test_all_tasks_are_one_request_and_each_element_knows_its_own(world: ClusterWorld, driver: Driver) -> None:
    assert elements(world) == [[0, 1, 2, 3, 4, 5]]
    request = world.cluster.requests["1"]
    assert request.script == "run parts --round=1 --first-task=0"
    assert driver.said == ["queue  parts: fake job 1, 6 tasks, 3 cores"]
    assert read_status(the_step(driver).output_path) is Status.RUNNING


def test_the_step_is_done_when_all_tasks_are(world: ClusterWorld, driver: Driver) -> None:
    finish(world, driver, 0, 1, 2, 3, 4)
    world.cluster.play("1_5", JobState.RUNNING)
    assert driver.look() == ["parts"]
    assert driver.said[-2:] == ["start  parts on node1", "tasks  parts: 5/6, 1 running"]
    finish(world, driver, 5)
    assert driver.look() == []
    assert driver.results == (["parts"], NOTHING)
    step = the_step(driver)
    assert read_status(step.output_path) is Status.SUCCESS
    assert json.loads(Path(step.output_path, ".artifact.json").read_text()) == [0, 1, 2, 3, 4, 5]
    assert len(world.cluster.requests) == 1


def test_a_good_end_without_a_record_is_not_believed(world: ClusterWorld, driver: Driver) -> None:
    finish(world, driver, 0, 1, 2, 3, 4)
    world.cluster.play("1_5", JobState.DONE)
    assert driver.look() == ["parts"]
    world.clock.time += 1000
    assert driver.look() == []
    assert driver.results == (NOTHING, ["parts"])
    assert driver.failures[0].startswith(
        "1 of 6 tasks failed: task 5: fake job 1_5 succeeded, but the step's status does not say so"
    )
    assert read_status(the_step(driver).output_path) is Status.FAILED


def test_tasks_that_lost_their_machines_are_submitted_again_together(world: ClusterWorld, driver: Driver) -> None:
    finish(world, driver, 0, 2, 4)
    for task in (1, 3):
        world.cluster.play(f"1_{task}", JobState.INTERRUPTED, word="PREEMPTED")
    world.cluster.play("1_5", JobState.RUNNING)
    assert driver.look() == ["parts"]
    assert elements(world)[1:] == [[1, 3]]
    finish(world, driver, 5)
    finish(world, driver, 1, 3, array="7", first=1)
    assert driver.look() == []
    assert driver.results == (["parts"], NOTHING)
    assert driver.jobs["parts"].attempt == 1


def test_how_often_a_task_may_be_interrupted_has_a_bound_of_its_own(world: ClusterWorld) -> None:
    driver = world.driver("parts", tasks=2, max_interruptions=1)
    driver.submit("parts")
    world.cluster.play("1_0", JobState.INTERRUPTED, word="NODE_FAIL")
    finish(world, driver, 1)
    assert driver.look() == ["parts"]
    world.cluster.play("3_0", JobState.INTERRUPTED, word="NODE_FAIL")
    assert driver.look() == []
    assert "task 0: fake job 3_0 was NODE_FAIL on node1; interruptions so far: 2, allowed: 1" in driver.failures[0]


def test_a_failure_lets_the_others_end_and_the_retry_is_for_it_alone(world: ClusterWorld, driver: Driver) -> None:
    write_record(the_step(driver), 2, Status.FAILED, error="ValueError: no", fake={"job_id": "1_2"})
    world.cluster.play("1_2", JobState.FAILED, exit_code=1)
    assert driver.look() == ["parts"]
    assert "failed parts: task 2: ValueError: no" in driver.said
    finish(world, driver, 0, 1, 3, 4, 5)
    assert driver.look() == []
    assert driver.failures == ["1 of 6 tasks failed: task 2: ValueError: no"]
    assert driver.results == (NOTHING, ["parts"])
    driver.submit("parts")  # As Snakemake does for a retry.
    assert elements(world)[1:] == [[2]]
    finish(world, driver, 2, array="7", first=2)
    assert driver.look() == []
    assert driver.results[0] == ["parts"]


def test_an_old_error_is_not_taken_for_the_reason_of_a_new_end(world: ClusterWorld, driver: Driver) -> None:
    finish(world, driver, 0, 1, 2, 3, 4)
    write_record(the_step(driver), 5, Status.FAILED, error="ValueError: last week", fake={"job_id": "0_5"})
    world.cluster.play("1_5", JobState.OUT_OF_MEMORY)
    assert driver.look() == []
    assert "task 5: fake job 1_5 ran out of memory on node1" in driver.failures[0]
    assert "last week" not in driver.failures[0]


def test_what_a_person_cancelled_is_not_tried_again(world: ClusterWorld, driver: Driver) -> None:
    world.cluster.play("1_3", JobState.CANCELLED)
    finish(world, driver, 0, 1, 2, 4, 5)
    assert driver.look() == []
    job = driver.jobs["parts"]
    assert job.attempt > job.restart_times
    assert "task 3: fake job 1_3 was cancelled" in driver.failures[0]


def test_ten_failures_without_a_success_end_the_rest(world: ClusterWorld) -> None:
    driver = world.driver("parts", tasks=30)
    driver.submit("parts")
    for number in range(8):
        world.cluster.play(f"1_{number}", JobState.FAILED, exit_code=1)
    for number in range(3):
        world.cluster.play(f"9_{number}", JobState.FAILED, exit_code=1)
    assert driver.look() == []
    assert "11 of 30 tasks failed" in driver.failures[0]
    assert "19 more were not tried" in driver.failures[0]
    assert len(world.cluster.cancelled) == 19


def test_the_arrays_of_a_dead_driver_are_taken_up(world: ClusterWorld, driver: Driver) -> None:
    finish(world, driver, 0, 1)
    for task in (2, 3):
        world.cluster.play(f"1_{task}", JobState.RUNNING)
    for task in (4, 5):
        world.cluster.play(f"1_{task}", JobState.INTERRUPTED)
    second = world.driver("parts", tasks=6)
    second.submit("parts")
    assert elements(world)[1:] == [[4, 5]]
    finish(world, second, 2, 3)
    finish(world, second, 4, 5, array="7", first=4)
    assert second.look() == []
    assert second.results == (["parts"], NOTHING)


def held_elsewhere(world: ClusterWorld, driver: Driver) -> Lease:
    """The lease of task 5, which somebody has who is no job of this cluster; the driver's own jobs are gone."""
    lease = TaskPlace(the_step(driver).output_path, 1, 5).open_lease(Owner.current())
    assert lease.try_acquire() is None
    write_record(the_step(driver), 5, Status.RUNNING)
    for task in range(6):
        world.cluster.play(f"1_{task}", JobState.CANCELLED)
    return lease


def test_a_task_that_somebody_else_has_is_waited_for_here(world: ClusterWorld, driver: Driver) -> None:
    """On another cluster, say, or on a laptop: no machine of ours is to wait for it."""
    step, other = the_step(driver), held_elsewhere(world, driver)
    second = world.driver("parts", tasks=6)
    second.submit("parts")
    assert elements(world)[1:] == [[0, 1, 2, 3, 4]]
    array = list(world.cluster.requests)[1]
    for task in range(5):
        write_record(step, task, Status.SUCCESS)
        world.cluster.play(f"{array}_{task}", JobState.DONE)
    assert second.look() == ["parts"]
    write_record(step, 5, Status.SUCCESS)
    other.release()
    assert second.look() == []
    assert second.results == (["parts"], NOTHING)


def test_a_task_that_somebody_else_gave_up_is_submitted(world: ClusterWorld, driver: Driver) -> None:
    step, other = the_step(driver), held_elsewhere(world, driver)
    for task in range(5):
        write_record(step, task, Status.SUCCESS)
    second = world.driver("parts", tasks=6)
    second.submit("parts")
    assert len(world.cluster.requests) == 1
    other.release()
    assert second.look() == ["parts"]
    assert elements(world)[1:] == [[5]]


def test_the_last_worker_may_have_ended_the_step_already(world: ClusterWorld, driver: Driver) -> None:
    finish(world, driver, *range(6))
    assert end_if_all_done(driver.plan, the_step(driver), 1, after=5, say=print)
    stamp = Path(the_step(driver).output_path, ".executor_info").stat().st_mtime_ns
    assert driver.look() == []
    assert driver.results == (["parts"], NOTHING)
    assert Path(the_step(driver).output_path, ".executor_info").stat().st_mtime_ns == stamp


def test_a_step_that_is_done_meanwhile_needs_no_job(world: ClusterWorld) -> None:
    driver = world.driver("parts", tasks=4)
    write_status(the_step(driver), Status.SUCCESS)
    driver.submit("parts")
    assert driver.look() == []
    assert driver.results == (["parts"], NOTHING)
    assert world.cluster.requests == {}


def test_more_tasks_than_fit_are_several_arrays_and_a_refused_one_is_tried_again(world: ClusterWorld) -> None:
    driver = world.driver("parts", tasks=20)
    world.cluster.while_submitting = lambda: world.cluster.refusals.append(ClusterError("not now"))
    driver.submit("parts")
    assert elements(world) == [list(range(8))]
    world.cluster.while_submitting = lambda: None
    world.cluster.refusals.clear()
    world.clock.time += 10
    assert driver.look() == ["parts"]
    assert elements(world) == [list(range(8)), list(range(8, 16)), list(range(16, 20))]


def test_an_array_whose_submission_got_no_answer_is_found(world: ClusterWorld) -> None:
    driver = world.driver("parts", tasks=5)
    world.cluster.loses_answers = True
    driver.submit("parts")
    assert elements(world) == [[0, 1, 2, 3, 4]]
    finish(world, driver, *range(5))
    assert driver.look() == []
    assert driver.results == (["parts"], NOTHING)


def test_ctrl_c_cancels_arrays_as_a_whole_and_says_so_of_the_step(world: ClusterWorld) -> None:
    driver = world.driver("parts", tasks=12)
    driver.submit("parts")
    finish(world, driver, 0)
    assert driver.look() == ["parts"]
    driver.cancel()
    assert world.cluster.cancelled == ["1", "9"]
    assert read_status(the_step(driver).output_path) is Status.CANCELLED
    again = world.driver("parts", tasks=12)
    for number in [number for number, job in world.cluster.known.items() if job.is_live]:
        world.cluster.play(number, JobState.CANCELLED)
    again.submit("parts")
    assert elements(world)[2:] == [list(range(1, 8)), list(range(8, 12))]


def test_while_the_cluster_is_silent_nothing_is_concluded(world: ClusterWorld, driver: Driver) -> None:
    world.cluster.error = BusyError("no answer")
    for _ in range(3):
        world.clock.time += 1000
        assert driver.look() == ["parts"]
    world.cluster.error = None
    finish(world, driver, *range(6))
    assert driver.look() == []
    assert driver.results == (["parts"], NOTHING)


def test_a_cluster_that_is_busy_is_asked_again(world: ClusterWorld) -> None:
    driver = world.driver("parts", tasks=3)
    world.cluster.refusals = [BusyError("come back later")]
    driver.submit("parts")
    assert elements(world) == [[0, 1, 2]]
    assert world.clock.waited


def test_a_forced_step_does_all_tasks_again_in_a_new_round(world: ClusterWorld, driver: Driver) -> None:
    finish(world, driver, *range(6))
    driver.look()
    again = world.driver("parts", tasks=6, forced=True)
    again.submit("parts")
    assert elements(world)[1:] == [[0, 1, 2, 3, 4, 5]]
    assert read_layout(the_step(again).output_path).round == 2  # type: ignore[union-attr]
    finish(world, again, *range(6), array="7")
    assert again.look() == []
    assert again.results == (["parts"], NOTHING)


def test_ten_thousand_tasks_are_watched_with_one_question_a_look(world: ClusterWorld) -> None:
    world.cluster.most_elements = 1000
    driver = world.driver("parts", tasks=10_000)
    driver.submit("parts")
    assert len(world.cluster.requests) == 10
    before = world.cluster.questions
    for number, request in world.cluster.requests.items():
        assert request.elements is not None
        for element in request.elements[:500]:
            world.cluster.play(f"{number}_{element}", JobState.RUNNING)
    for _ in range(3):
        assert driver.look() == ["parts"]
    assert world.cluster.questions - before == 3
    assert driver.said[-1] == "tasks  parts: 0/10000, 5000 running"
    assert len(driver.said) < 20, "nothing is said of each task"
