"""`marin-rules jobs list | logs | stop` in this process, over fake clusters."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from marin_rules.active import queues
from marin_rules.clusters.protocol import BusyError, Cluster, Extra, JobState, JobTag, RefusedError
from marin_rules.commands.main import main
from marin_rules.state.status import Status
from support.active_world import ActiveWorld, dead_here, tag_of
from support.fake_queue import FakeQueue
from support.small_plans import leave_tasks


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ActiveWorld:
    """Two clusters are here, `cloud` and `grid`; the time is that of this machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    world = ActiveWorld(tmp_path)
    world.clock.wall = time.time()
    monkeypatch.setattr(queues, "clusters_here", lambda name: [_cluster(world.cloud), _cluster(world.grid)])
    return world


def _cluster(queue: FakeQueue) -> Cluster:
    return Cluster(
        queue.cluster,
        open_queue=lambda name: queue,
        open_site=lambda name: None,  # type: ignore[arg-type, return-value]
        first_file=lambda: "",
        is_here=lambda name: True,
    )


def test_what_is_active_is_listed_for_people_and_for_programs(
    world: ActiveWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["jobs", "list"]) == 0
    assert capsys.readouterr().out == "nothing is running or queued\n"
    plan = world.run("a", "b")
    world.cloud.add("7", tag_of(plan, plan.steps[0]))
    world.grid.add("7", tag_of(plan, plan.steps[1]), JobState.WAITING, reason="Priority")
    assert main(["jobs", "list"]) == 0
    _head, first, second, _, run = capsys.readouterr().out.splitlines()
    assert first.split() == ["a", "cloud", "7", "RUNNING", "node1", "1m01s", "1", plan.run.id]
    assert second.split() == ["b", "grid", "7", "PENDING", "(Priority)", "-", "-", "1", plan.run.id]
    assert run.endswith(": 0 steps done, 2 left")
    assert main(["jobs", "list", "--json"]) == 0
    assert [step["state"] for step in json.loads(capsys.readouterr().out)["steps"]] == ["RUNNING", "PENDING"]
    assert world.cloud.is_closed


def test_a_silent_cluster_is_named_and_nothing_is_forgotten(
    world: ActiveWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = world.run("a", driver=dead_here())
    world.grid.error = BusyError("no answer for 20 s")
    assert main(["jobs", "list"]) == 0
    told = capsys.readouterr()
    assert told.err == "marin-rules: cannot list the jobs of grid: no answer for 20 s\n"
    assert plan.run.id in told.out
    world.grid.error = None
    assert main(["jobs", "list"]) == 0
    assert capsys.readouterr().out == "nothing is running or queued\n"
    assert world.registered(plan.run.id) is None


def test_a_step_on_a_cluster_is_stopped(world: ActiveWorld, capsys: pytest.CaptureFixture[str]) -> None:
    plan = world.run("a", "b")
    world.cloud.add("7", tag_of(plan, plan.steps[0]), JobState.WAITING)
    assert main(["jobs", "stop", "a"]) == 0
    told = capsys.readouterr()
    assert told.out == "stopped a: CANCELLED\n"
    assert told.err == "marin-rules: stopping a: cancelled cloud job 7\n"
    assert world.status(plan.steps[0]) == "CANCELLED"
    assert main(["jobs", "stop", "b"]) == 1
    assert capsys.readouterr().err == "marin-rules: step b does not run: it has not started yet\n"


def test_a_step_that_had_ended_says_so(world: ActiveWorld, capsys: pytest.CaptureFixture[str]) -> None:
    plan = world.run("a")
    world.cloud.add("7", tag_of(plan, plan.steps[0]))
    lease = world.work(plan.steps[0], run=plan.run.id, info={"cloud": {"job_id": "7"}})

    def end(number: str) -> None:
        world.finish(lease, plan.steps[0], Status.SUCCESS)
        world.cloud.play(number, JobState.DONE)

    world.cloud.on_cancel = end
    assert main(["jobs", "stop", plan.steps[0].key]) == 0
    assert capsys.readouterr().out == "a had ended before it was stopped: SUCCESS\n"
    assert main(["jobs", "stop", "a"]) == 1
    assert capsys.readouterr().err == "marin-rules: step a does not run: SUCCESS\n"


def test_a_run_on_two_clusters_is_stopped(world: ActiveWorld, capsys: pytest.CaptureFixture[str]) -> None:
    plan = world.run("a", "b", driver=dead_here())
    world.cloud.add("7", tag_of(plan, plan.steps[0]), JobState.WAITING)
    world.grid.add("7", tag_of(plan, plan.steps[1]), JobState.WAITING)
    assert main(["jobs", "stop", plan.run.id[:-1]]) == 0
    told = capsys.readouterr()
    assert told.out == f"stopped a: CANCELLED\nstopped b: CANCELLED\nstopped run {plan.run.id}\n"
    assert "cancelled cloud job 7, grid job 7" in told.err
    assert world.registered(plan.run.id) is None


def test_the_jobs_of_a_forgotten_run(world: ActiveWorld, capsys: pytest.CaptureFixture[str]) -> None:
    world.cloud.add("7", JobTag("gone-1", "a-123456", "0123456789ab"))
    assert main(["jobs", "list"]) == 0
    assert "RUNNING (driver gone)" in capsys.readouterr().out
    assert main(["jobs", "logs", "a"]) == 1
    assert "the output path of step a-123456 is not known: its run is no longer recorded" in capsys.readouterr().err
    assert main(["jobs", "stop", "gone-1"]) == 0
    assert capsys.readouterr().out == "stopped a\nstopped run gone-1\n"
    assert world.cloud.cancelled == ["7"]


def test_a_log_and_why_there_is_none(world: ActiveWorld, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    plan = world.run("a", "b")
    world.cloud.add("7", tag_of(plan, plan.steps[0]), JobState.WAITING, reason="Priority")
    assert main(["jobs", "logs", "a"]) == 1
    said = b"marin-rules: step a has written no log yet: cloud job 7 is PENDING (Priority)\n"
    assert capfdbinary.readouterr().err == said
    assert main(["jobs", "logs", "b"]) == 1
    assert capfdbinary.readouterr().err.endswith(b"/.executor_log: it has not started yet\n")

    world.finish(world.work(plan.steps[1], run=plan.run.id), plan.steps[1], Status.SUCCESS)
    (Path(plan.steps[1].output_path) / ".executor_log").write_bytes(b"one\n\xff two\nthree\n")
    assert main(["jobs", "logs", "b"]) == 0
    assert capfdbinary.readouterr().out == b"one\n\xff two\nthree\n"
    assert main(["jobs", "logs", "b", "--tail", "1", "-f"]) == 0
    told = capfdbinary.readouterr()
    assert (told.out, told.err) == (b"three\n", b"marin-rules: step b: SUCCESS\n")


def test_before_a_step_has_a_log_the_output_of_its_job_is_shown(
    world: ActiveWorld, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    plan = world.run("a")
    world.cloud.add("7", tag_of(plan, plan.steps[0]), JobState.RUNNING)
    world.cloud.printed["7"] = ["making a Python", "fetching", "cannot fetch"]
    said = b"marin-rules: step a has written no log yet: cloud job 7 is RUNNING. So far the job itself has printed:\n"
    assert main(["jobs", "logs", "a"]) == 0
    assert capfdbinary.readouterr() == (b"making a Python\nfetching\ncannot fetch\n", said)
    assert main(["jobs", "logs", "a", "--tail", "1"]) == 0
    assert capfdbinary.readouterr() == (b"cannot fetch\n", said)


def test_the_log_of_one_task(world: ActiveWorld, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    plan = world.run("a")
    path = plan.steps[0].output_path
    assert main(["jobs", "logs", "a", "--task", "1"]) == 1
    assert capfdbinary.readouterr().err == b"marin-rules: step a has no tasks so far: leave out --task\n"
    leave_tasks(path, Status.RUNNING, Status.SUCCESS, None)
    assert main(["jobs", "logs", "a", "--task", "1"]) == 0
    assert capfdbinary.readouterr().out == b"task 1\n"
    assert main(["jobs", "logs", "a", "--task", "1", "-f"]) == 0, "a task that is done is not followed for ever"
    assert capfdbinary.readouterr().out == b"task 1\n"
    for number in ("3", "-1"):
        assert main(["jobs", "logs", "a", "--task", number]) == 1
        said = f"marin-rules: step a has no task {number}: its tasks are 0 to 2\n".encode()
        assert capfdbinary.readouterr().err == said


def test_a_damaged_registration_hides_no_other_run(world: ActiveWorld, capsys: pytest.CaptureFixture[str]) -> None:
    plan, damaged = world.run("a"), world.run("b")
    world.edit_registration(damaged.run.id, started=7)
    (world.registration(plan.run.id).parent / "cut.json").write_text('{"id": ')
    assert main(["jobs", "list"]) == 0
    told = capsys.readouterr()
    assert plan.run.id in told.out
    assert damaged.run.id not in told.out


@pytest.mark.parametrize(
    "words", [["logs", "a", "--tail", "0"], ["logs", "a", "--tail", "x"], ["logs", "a", "--rank", "x"]]
)
def test_numbers_that_are_none(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["jobs", *words])
    assert ended.value.code == 2


def test_what_dead_runs_have_left_is_told_and_ended_only_if_asked(
    world: ActiveWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = world.run("a", driver=dead_here())
    living = world.run("b")
    world.cloud.add("7", tag_of(plan, plan.steps[0]))
    world.cloud.add("8", tag_of(living, living.steps[0]))
    world.cloud.beside.append(Extra("z/s", "TPU slice s in z", "SUSPENDED", tag_of(plan, plan.steps[0])))
    assert main(["jobs", "reap"]) == 0
    first, second, advice = capsys.readouterr().out.splitlines()
    assert first.startswith(f"cloud job 7 (RUNNING) of {plan.steps[0].key}: the driver of run {plan.run.id} is dead")
    assert second.startswith("TPU slice s in z (SUSPENDED)")
    assert "reap --yes" in advice
    assert (world.cloud.cancelled, len(world.cloud.beside)) == ([], 1)
    assert main(["jobs", "reap", "--yes"]) == 0
    assert (world.cloud.cancelled, world.cloud.beside) == (["7"], [])


def test_a_refusal_keeps_nothing_else_of_what_is_left_from_being_ended(
    world: ActiveWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = world.run("a", "b", "c", driver=dead_here())
    world.cloud.add("7", tag_of(dead, dead.steps[0]))
    for step in dead.steps:
        world.cloud.beside.append(Extra(f"z/{step.name}", "TPU slice", "ACTIVE", tag_of(dead, step)))
    remove = world.cloud.remove

    def refuse(what: object) -> None:
        raise RefusedError(f"may not end {what}")

    monkeypatch.setattr(world.cloud, "cancel", refuse)
    monkeypatch.setattr(world.cloud, "remove", lambda one: refuse(one.id) if one.id == "z/b" else remove(one))
    assert main(["jobs", "reap", "--yes"]) == 1
    told = capsys.readouterr()
    assert "may not end ['7']" in told.err
    assert "ended" not in told.out.splitlines()[-1]
    assert [extra.id for extra in world.cloud.beside] == ["z/a", "z/b"]


def test_a_job_that_a_living_run_has_found_is_not_left_over(
    world: ActiveWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its tag, and that of its slice, name the run that is dead."""
    dead = world.run("a", "b", driver=dead_here())
    world.run("a")
    for number, step in zip("78", dead.steps, strict=True):
        world.cloud.add(number, tag_of(dead, step))
        world.cloud.beside.append(Extra(f"z/{number}", f"TPU slice {number}", "ACTIVE", tag_of(dead, step)))
    assert main(["jobs", "list"]) == 0
    assert ["driver gone" in line for line in capsys.readouterr().out.splitlines()[1:3]] == [False, True]
    assert main(["jobs", "reap", "--yes"]) == 0
    job, its_slice, _ = capsys.readouterr().out.splitlines()
    assert job.startswith("cloud job 8 (RUNNING)")
    assert its_slice == f"TPU slice 8 (ACTIVE) of {dead.steps[1].key}: it goes with the job of its step"
    assert (world.cloud.cancelled, [extra.id for extra in world.cloud.beside]) == (["8"], ["z/7"])


def test_a_slice_between_two_jobs_of_a_step_that_is_awaited_is_kept(world: ActiveWorld) -> None:
    dead = world.run("a", driver=dead_here())
    world.cloud.beside.append(Extra("z/s", "TPU slice s", "ACTIVE", tag_of(dead, dead.steps[0])))
    living = world.run("a")
    assert main(["jobs", "reap", "--yes"]) == 0
    assert len(world.cloud.beside) == 1
    world.finish(world.work(living.steps[0]), living.steps[0], Status.SUCCESS)
    assert main(["jobs", "reap", "--yes"]) == 0
    assert world.cloud.beside == []


def test_nothing_is_ended_on_a_cluster_that_does_not_list_its_jobs(
    world: ActiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice whose job is not listed would look as if nobody had it."""
    plan = world.run("a", driver=dead_here())
    world.cloud.add("7", tag_of(plan, plan.steps[0]))
    world.grid.beside.append(Extra("z/s", "TPU slice s in z", "ACTIVE", tag_of(plan, plan.steps[0])))
    monkeypatch.setattr(world.grid, "jobs", lambda: (_ for _ in ()).throw(BusyError("no answer")))
    assert main(["jobs", "reap", "--yes"]) == 0
    assert world.cloud.cancelled == ["7"]
    assert len(world.grid.beside) == 1
