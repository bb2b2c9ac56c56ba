"""How submitted drivers stand, by their own word and by that of clusters."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from marin_rules.active.driver_stopping import stop_driver
from marin_rules.active.driver_watch import follow_driver, wait_for_driver
from marin_rules.active.drivers import look_at_drivers
from marin_rules.active.lookup import NotFoundError, find_driver
from marin_rules.active.step_logs import Log
from marin_rules.clusters.protocol import BusyError, JobState, JobTag
from marin_rules.errors import MarinRulesError
from marin_rules.plans.plan_file import write_plan
from marin_rules.state.driver_record import DriverRecord, Holder, make_folders
from marin_rules.state.run_registry import forget
from marin_rules.storage.leases.owner import Owner
from support.active_world import ActiveWorld, dead_here, tag_of
from support.lease_models.clock import elsewhere


def submitted(world: ActiveWorld, id: str = "x-20261118-101010-abcdef", holder: Holder | None = None) -> DriverRecord:
    make_folders()
    record = DriverRecord(
        id=id,
        name="mine",
        command=("snakemake",),
        words=("snakemake",),
        is_for_job=True,
        takes_plan_by_flag=False,
        experiment="/home/x.py",
        working_directory="/home",
        digest="",
        plan_path="plan",
        code="code",
        checksums={},
        submitted=world.clock.time(),
    )
    os.makedirs(record.folder)
    record.write()
    if holder is not None:
        record.claim(holder)
    return record


def state(world: ActiveWorld, record: DriverRecord) -> tuple[str, bool]:
    (driver,) = look_at_drivers([record], world.queues.live_jobs(), world.clock.time())
    return driver.state, driver.is_over


def test_a_driver_in_a_job_stands_as_its_job_does(world: ActiveWorld) -> None:
    record = submitted(world)
    assert state(world, record) == ("SUBMITTING", False)
    record.claim(Holder("grid", "7"))
    tag = JobTag.of_driver(record.id)
    world.grid.add("7", tag, JobState.WAITING, reason="Priority")
    assert state(world, record) == ("PENDING (Priority)", False)
    world.grid.add("7", tag)
    assert state(world, record) == ("RUNNING", False)
    assert list(world.look().steps) == [], "it is no step"
    world.grid.error = BusyError("no answer")
    assert state(world, record) == ("RUNNING", False)
    world.grid.error = None
    world.grid.play("7", JobState.FAILED)
    assert state(world, record) == ("GONE (killed before it could say how the run ended)", True)
    record.write_end(3)
    assert state(world, record) == ("ENDED (exit code 3)", True)


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (Owner.current(), ("RUNNING", False)),
        (elsewhere("login2"), ("RUNNING", False)),
        (dead_here(), ("GONE (killed before it could say how the run ended)", True)),
    ],
)
def test_a_driver_that_is_a_process_lives_as_long_as_that(
    owner: Owner, expected: tuple[str, bool], world: ActiveWorld
) -> None:
    assert state(world, submitted(world, holder=Holder(owner=owner))) == expected


def test_a_submission_that_was_killed_is_over_after_a_while(world: ActiveWorld) -> None:
    record = submitted(world)
    world.clock.advance(601)
    assert state(world, record)[1]


def test_a_job_of_a_cluster_that_cannot_be_asked_from_here_may_live(world: ActiveWorld) -> None:
    assert state(world, submitted(world, holder=Holder("far-away", "7"))) == ("RUNNING", False)


def test_waiting_ends_with_the_word_of_the_driver(world: ActiveWorld) -> None:
    record = submitted(world, holder=Holder("grid", "7"))
    world.grid.add("7", JobTag.of_driver(record.id))
    Path(record.log_path).write_text("first\n")
    world.clock.after(40, lambda: Path(record.log_path).write_text("first\nlast\n"))
    world.clock.after(60, lambda: record.write_end(4))
    seen: list[bytes] = []
    ended = follow_driver(record, world.queues, Log(record.log_path), seen.append, world.clock)
    assert (ended.exit_code, b"".join(seen)) == (4, b"first\nlast\n")
    assert wait_for_driver(record, world.queues, clock=world.clock).exit_code == 4


def test_a_job_that_vanishes_is_waited_for_a_little_longer(world: ActiveWorld) -> None:
    """It may be on its way back into the queue, and its last word on its way through the file system."""
    record = submitted(world, holder=Holder("grid", "7"))
    world.grid.add("7", JobTag.of_driver(record.id))
    world.clock.after(10, lambda: world.grid.play("7", JobState.FAILED))
    world.clock.after(20, lambda: world.grid.add("7", JobTag.of_driver(record.id)))
    world.clock.after(100, lambda: world.grid.play("7", JobState.FAILED))
    world.clock.after(110, lambda: record.write_end(0))
    assert wait_for_driver(record, world.queues, clock=world.clock).exit_code == 0


def test_a_job_that_has_vanished_for_good(world: ActiveWorld) -> None:
    record = submitted(world, holder=Holder("grid", "7"))
    ended = wait_for_driver(record, world.queues, clock=world.clock)
    assert (ended.end, ended.exit_code) == (None, 1)


def test_a_driver_is_stopped_with_what_it_leaves(world: ActiveWorld) -> None:
    plan = world.run("a", "b", driver=elsewhere("node7"))
    record = submitted(world, plan.run.id, Holder("grid", "7"))
    world.grid.add("7", JobTag.of_driver(record.id))
    world.grid.add("8", tag_of(plan, plan.steps[0]), JobState.WAITING)
    said: list[str] = []
    stopped = stop_driver(record, world.queues, said.append, world.clock)
    assert said[0] == f"asked driver {record.id} (grid job 7) to end, waiting for it"
    assert record.is_asked_to_stop
    assert world.grid.cancelled[0] == "7", "the driver first: it starts further jobs"
    assert [(one.step.name, one.status) for one in stopped] == [("a", "CANCELLED")]
    assert world.registered(plan.run.id) is None
    assert state(world, record) == ("STOPPED", True)
    with pytest.raises(MarinRulesError, match="has ended already: STOPPED"):
        stop_driver(record, world.queues, said.append, world.clock)


def test_a_driver_whose_cluster_is_silent_is_not_told_to_stop(world: ActiveWorld) -> None:
    record = submitted(world, holder=Holder("grid", "7"))
    world.grid.error = BusyError("no answer")
    with pytest.raises(MarinRulesError, match=r"is grid job 7, and .* does not answer \(no answer\): try again later"):
        stop_driver(record, world.queues, print, world.clock)
    assert not record.is_asked_to_stop


@pytest.mark.parametrize(
    ("holder", "said"),
    [
        (None, "is being submitted: try again in a moment"),
        (Holder("far-away", "7"), "is far-away job 7, which cannot be cancelled from this machine"),
        (Holder(owner=elsewhere("login2")), "run `marin-rules jobs stop x-20261118-101010-abcdef` there"),
    ],
)
def test_a_driver_out_of_reach(holder: Holder | None, said: str, world: ActiveWorld) -> None:
    record = submitted(world, holder=holder)
    with pytest.raises(MarinRulesError) as refused:
        stop_driver(record, world.queues, print, world.clock)
    assert said in str(refused.value)


def test_which_driver_is_meant(world: ActiveWorld) -> None:
    one = submitted(world)
    assert find_driver("mine") == find_driver(one.id[:-3]) == one
    assert find_driver("nosuch") is None
    world.run("x")
    assert find_driver("x", world.look()) is None, "a step has that name"
    assert find_driver("mine", world.look()) == one
    other = submitted(world, "x-20261118-101010-fedcba")
    with pytest.raises(NotFoundError, match=f"the beginning of several drivers; write more of it: .*{other.id}"):
        find_driver("x-20261118")


def test_the_steps_of_a_driver_that_was_sent_away_are_found_and_stopped(world: ActiveWorld, tmp_path: Path) -> None:
    """Its run is registered on its own machine alone, and in its place."""
    plan = world.run("a", "b", driver=elsewhere("vm"))
    here = submitted(world, plan.run.id, Holder("grid", "7"))
    record = replace(here, place=str(tmp_path / "place"), digest=plan.digest)
    record.write()
    forget(plan.run)
    os.mkdir(tmp_path / "place")
    write_plan(plan, record.own_plan_path)
    record.claim(Holder("grid", "7"))
    record.register_run(elsewhere("vm"))
    world.grid.add("7", JobTag.of_driver(record.id))
    world.grid.add("8", tag_of(plan, plan.steps[0]), JobState.WAITING)
    survey = world.look()
    assert [(one.run.id, one.done, one.left) for one in survey.runs] == [(plan.run.id, 0, 2)]
    world.grid.play("7", JobState.FAILED)
    assert [one.driver_is_gone for one in world.look().steps] == [True]
    stopped = stop_driver(record, world.queues, print, world.clock)
    assert [(one.step.name, one.status) for one in stopped] == [("a", "CANCELLED")]
    assert world.look().runs == []


def test_a_driver_whose_store_does_not_answer_may_live(world: ActiveWorld) -> None:
    record = submitted(world, holder=Holder("grid", "7"))
    os.remove(os.path.join(record.folder, "holder.json"))
    os.mkfifo(os.path.join(record.folder, "holder.json"))
    said, is_over = state(world, record)
    assert said.startswith("UNKNOWN (")
    assert not is_over
    with pytest.raises(MarinRulesError, match=r"cannot be stopped now: .*holder\.json"):
        stop_driver(record, world.queues, print, world.clock)


def test_a_driver_that_never_began_is_told_in_the_words_of_its_job(world: ActiveWorld, tmp_path: Path) -> None:
    record = replace(submitted(world), place=str(tmp_path / "place"))
    os.mkdir(tmp_path / "place")
    record.claim(Holder("grid", "7"))
    world.grid.add("7", JobTag.of_driver(record.id))
    world.grid.play("7", JobState.FAILED)
    world.grid.printed["7"] = ["/nowhere/python: No such file or directory"]
    seen: list[bytes] = []
    ended = follow_driver(record, world.queues, Log(record.log_path), seen.append, world.clock)
    assert (ended.exit_code, b"".join(seen)) == (1, b"/nowhere/python: No such file or directory\n")
