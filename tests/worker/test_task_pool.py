"""The tasks of an array step on one machine, whatever is killed: the next run does what is left, and nothing twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_rules.state.task_records import TaskPlace
from support.array_experiment import ArrayLab
from support.lab import Lab, Running
from support.lease_models.clock import elsewhere

pytestmark = pytest.mark.processes


def begun(array: ArrayLab, *tasks: int) -> Callable[[], bool]:
    return lambda: set(tasks) <= set(array.noted("begin"))


def done(array: ArrayLab, *tasks: int) -> Callable[[], bool]:
    """Not only have they come to their ends: it is written down."""

    def are_done() -> bool:
        words = array.words() if array.noted("end") else {}
        return all(words.get(task) == "SUCCESS" for task in tasks)

    return are_done


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_each_task_runs_once_and_knows_which_one_it_is(array: ArrayLab) -> None:
    result = array.start_worker().wait()
    assert result.code == 0, result.output
    array.assert_finished(6)
    array.assert_never_twice()
    assert array.noted("begin") == list(range(6))
    assert {line[4] for line in array.ran if line[0] == "begin"} == {"6"}
    for task in range(6):
        assert f"[many] [task {task}] this is {task}\n" in result.output
        log = (array.folder / f".executor_tasks/round-1/{task}.log").read_text()
        assert f"\nthis is {task}\n" in log
        assert array.record(task)["attempt"] == 1
    log = (array.folder / ".executor_log").read_text()
    assert "[task 3] this is 3\n" in log
    assert "\n6/6\n" in log


def test_a_failed_task_keeps_no_other_from_running_and_only_it_runs_again(array: ArrayLab) -> None:
    array.order(fail=[1, 4])
    result = array.start_worker().wait()
    assert result.code == 1, result.output
    assert array.noted("end") == [0, 2, 3, 5]
    assert array.words() == {0: "SUCCESS", 1: "FAILED", 2: "SUCCESS", 3: "SUCCESS", 4: "FAILED", 5: "SUCCESS"}
    assert array.record(4)["error"] == "ValueError: no 4"
    told = "2 of 6 tasks failed: task 1: ValueError: no 1; also task 4"
    assert f"[many] FAILED: {told}; log: " in result.output
    assert array.lab.info_of("many")["run"]["error"] == told
    assert "Traceback" in (array.folder / ".executor_tasks/round-1/4.log").read_text()
    assert array.leases() == []

    array.order()
    array.forget()
    result = array.start_worker().wait()
    assert result.code == 0, result.output
    assert array.noted("begin") == [1, 4]
    array.assert_finished(6)
    assert array.record(4)["attempt"] == 2
    assert "error" not in array.record(4)


def test_after_ten_failures_without_a_success_the_rest_is_not_tried(array: ArrayLab) -> None:
    array.divide(16)
    array.order(fail="all")
    result = array.start_worker(cores=3).wait()
    assert result.code == 1, result.output
    tried = array.noted("begin")
    assert 10 <= len(tried) <= 12
    assert f"; {16 - len(tried)} more were not tried, because everything before them failed" in result.output
    array.order(fail=[0])
    array.forget()
    result = array.start_worker(cores=3).wait()
    assert result.code == 1, result.output
    assert array.noted("begin") == list(range(16)), "with a success among them, all are tried"


def test_no_more_tasks_at_once_than_there_are_cores(array: ArrayLab) -> None:
    array.order(wait="all")
    run = array.start_worker(cores=3)
    run.wait_for(begun(array, 0, 1, 2), "three tasks run")
    pool = parent_of(array.pids(0)[1])
    workers = Path(f"/proc/{pool}/task/{pool}/children").read_text().split()
    assert len(workers) == 3
    assert array.noted("begin") == [0, 1, 2]
    array.go()
    assert run.wait().code == 0
    array.assert_finished(6)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_signal_is_told_to_each_running_task_once(number: signal.Signals, array: ArrayLab, lab: Lab) -> None:
    array.divide(6, saves=1.3)  # For longer than the pool waits before it tells their workers again.
    array.order(wait=[1, 2])
    run = array.start_worker()
    run.wait_for(begun(array, 1, 2), "both tasks run")
    os.kill(run.pid, number)
    result = run.wait()
    assert result.code == 128 + number, result.output
    assert lab.status_of("many") == "CANCELLED"
    assert array.words() == {0: "SUCCESS", 1: "CANCELLED", 2: "CANCELLED"}
    assert array.noted("told") == [1, 2]
    assert array.leases() == []
    assert run.alive() == []

    array.order()
    result = array.start_worker().wait()
    assert result.code == 0, result.output
    array.assert_finished(6)
    array.assert_never_twice()
    assert array.noted("begin") == [0, 1, 1, 2, 2, 3, 4, 5]


def test_a_stop_signal_after_the_last_task_undoes_nothing(array: ArrayLab) -> None:
    """A task that handles the signal and does not mind is done; if it was the last one, so is the step."""
    array.divide(1)
    array.order(wait=[0])
    source = array.file.read_text()
    source = source.replace('sys.exit("stopped")', "declare_complete()\n            break")
    array.file.write_text(f"from marin_rules import declare_complete\n{source}")
    run = array.start_worker()
    run.wait_for(begun(array, 0), "the task runs")
    os.kill(run.pid, signal.SIGTERM)
    result = run.wait()
    assert result.code == 0, result.output
    array.assert_finished(1)


def kill_worker_of_the_step(array: ArrayLab, run: Running) -> None:
    os.kill(run.pid, signal.SIGKILL)


def kill_pool(array: ArrayLab, run: Running) -> None:
    os.kill(parent_of(array.pids(1)[1]), signal.SIGKILL)


def kill_worker_of_a_task(array: ArrayLab, run: Running) -> None:
    os.kill(array.pids(1)[1], signal.SIGKILL)


def kill_task(array: ArrayLab, run: Running) -> None:
    os.kill(array.pids(1)[0], signal.SIGKILL)


WORD = "was killed by SIGKILL (the kernel does that when memory runs out)"


@pytest.mark.parametrize(
    ("kill", "status", "words", "told"),
    [
        (kill_worker_of_the_step, "RUNNING", {1: "RUNNING", 2: "RUNNING"}, ""),
        (kill_pool, "FAILED", {1: "RUNNING", 2: "RUNNING"}, f"its process {WORD}"),
        (kill_worker_of_a_task, "FAILED", {1: "RUNNING", 2: "SUCCESS"}, f"task 1: its worker {WORD}"),
        (kill_task, "FAILED", {1: "FAILED", 2: "SUCCESS"}, f"task 1: its process {WORD}"),
    ],
)
def test_sudden_deaths(
    kill: Callable[[ArrayLab, Running], None],
    status: str,
    words: dict[int, str],
    told: str,
    array: ArrayLab,
    lab: Lab,
) -> None:
    array.order(wait=[1, 2], fork=[1] if told else [])  # What a killed worker of a step has left is nobody's to end.
    run = array.start_worker()
    run.wait_for(begun(array, 1, 2), "both tasks run")
    run.wait_for(done(array, 0), "the first task is done")
    processes = [array.pids(task)[0] for task in (1, 2) if words[task] != "SUCCESS"]
    processes += [int(line[2]) for line in array.ran if line[0] == "child"]
    kill(array, run)
    lab.wait_until(lambda: not any(map(lab.is_running, processes)), "the end of what it takes with it")
    array.go()
    result = run.wait()
    assert result.code == (1 if told else -signal.SIGKILL), result.output
    assert told in result.output
    lab.wait_until(lambda: not run.alive(), "the end of all processes")
    assert lab.status_of("many") == status
    assert {task: word for task, word in array.words().items() if task in words} == words

    array.order()
    again = array.start_worker().wait()
    assert again.code == 0, again.output
    assert "waiting: held by" not in again.output
    array.assert_never_twice()
    array.assert_finished(6)


def test_a_task_that_a_machine_had_which_went_down_is_taken_over(array: ArrayLab, lab: Lab) -> None:
    """It takes a lifetime to see that nobody refreshes its lease."""
    array.order(fail=[3])
    assert array.start_worker().wait().code == 1
    place = TaskPlace(str(array.folder), 1, 3)
    Path(place.record_path).write_text('{"status": "RUNNING", "attempt": 2}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARIN_LEASE_LIFETIME_SECONDS", "1")
        assert place.open_lease(elsewhere("node7")).try_acquire() is None
    array.order()
    array.forget()
    run = array.start_worker()
    run.wait_for(lambda: "[many] [task 3] waiting: held by node7-" in run.output, "the task is waited for")
    result = run.wait()
    assert result.code == 0, result.output
    assert "[many] [task 3] takes over from node7-" in result.output
    assert array.noted("begin") == [3]
    array.assert_finished(6)


def test_a_task_that_another_run_does_meanwhile_is_not_done_here(array: ArrayLab) -> None:
    array.order(fail=[3])
    assert array.start_worker().wait().code == 1
    place = TaskPlace(str(array.folder), 1, 3)
    lease = place.open_lease(elsewhere("node7"))
    assert lease.try_acquire() is None
    array.order()
    array.forget()
    run = array.start_worker()
    run.wait_for(lambda: "[many] [task 3] waiting: held by node7-" in run.output, "the task is waited for")
    artifact = {"task": 3, "by": "node7"}
    lease.read(place.record_path)
    lease.overwrite(place.record_path, json.dumps({"status": "SUCCESS", "artifact": artifact}).encode())
    lease.release()
    result = run.wait()
    assert result.code == 0, result.output
    assert array.noted("begin") == []
    assert json.loads((array.folder / ".artifact.json").read_text())[3] == artifact


def test_two_runs_at_once(array: ArrayLab) -> None:
    array.order(wait=[0])
    runs = [array.start_worker(), array.start_worker()]
    waiting = runs[0].wait_for(
        lambda: [run for run in runs if "[many] waiting: held by " in run.output], "one waits for the other"
    )
    assert len(waiting) == 1
    array.go()
    assert [run.wait().code for run in runs] == [0, 0]
    array.assert_never_twice()
    assert array.noted("begin") == list(range(6))
    array.assert_finished(6)


def test_a_step_that_empties_its_own_folder(array: ArrayLab, lab: Lab) -> None:
    array.order(empty=[2], wait=[2])
    run = array.start_worker()
    run.wait_for(done(array, 0, 1, 3, 4, 5), "the others are done")
    array.go()
    result = run.wait()
    assert result.code == 1, result.output
    told = f"its output folder {array.lab.prefix.name}/"
    assert told in result.output
    assert "was emptied or removed while it ran" in result.output
    assert "Traceback" not in result.output
    assert lab.status_of("many") is None

    array.order()
    result = array.start_worker().wait()
    assert result.code == 0, result.output
    array.assert_finished(6)
