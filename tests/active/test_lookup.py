"""Which step or run a person means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from marin_rules.active.lookup import NotFoundError, find_run, find_steps, the_only
from marin_rules.clusters.protocol import JobTag
from marin_rules.state.status import Status
from support.active_world import ActiveWorld, write_info


def test_a_step_by_its_name_its_key_and_its_path(world: ActiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = world.run("parts/a", "b")
    step = plan.steps[0]
    monkeypatch.chdir(Path(step.output_path).parents[1])
    survey = world.look()
    for text in ("parts/a", step.key, step.output_path, f"{step.output_path}/", os.path.relpath(step.output_path)):
        (found,) = find_steps(survey, text)
        assert (found.name, found.key, found.output_path) == ("parts/a", step.key, step.output_path), text
    assert find_steps(survey, "parts") == []


def test_a_step_that_several_runs_want_is_one_step(world: ActiveWorld) -> None:
    first, second = world.run("a"), world.run("a")
    (found,) = find_steps(world.look(), "a")
    assert sorted(found.runs) == sorted([first.run.id, second.run.id])


def test_a_name_below_two_prefixes_is_two_steps(world: ActiveWorld) -> None:
    plans = [world.run("a"), world.run("a", prefix="second")]
    found = find_steps(world.look(), "a")
    with pytest.raises(NotFoundError) as refused:
        the_only(found, "a")
    first, *candidates = str(refused.value).splitlines()
    assert first == "'a' may be one of several steps; name it by its path:"
    assert sorted(candidates) == sorted(f"  {plan.steps[0].output_path}" for plan in plans)


def test_jobs_of_forgotten_runs_below_two_prefixes_are_two_steps(world: ActiveWorld) -> None:
    """Neither may be stopped for the other."""
    for number, place in (("7", "aaaaaaaaaaaa"), ("8", "bbbbbbbbbbbb")):
        world.cloud.add(number, JobTag(f"gone-{number}", "a-123456", place))
    survey = world.look()
    found = find_steps(survey, "a-123456")
    assert [step.place for step in found] == ["aaaaaaaaaaaa", "bbbbbbbbbbbb"]
    assert [[one.run for one in survey.of_step(step)] for step in found] == [["gone-7"], ["gone-8"]]
    with pytest.raises(NotFoundError, match=r"a-123456 \(its run is no longer recorded\)"):
        the_only(found, "a-123456")


def test_a_finished_step_by_its_path(world: ActiveWorld, tmp_path: Path) -> None:
    path = tmp_path / "out" / "old-123456"
    write_info(str(path), name="older/name")
    (found,) = find_steps(world.look(), str(path))
    assert (found.name, found.key, found.runs) == ("older/name", "old-123456", ())
    (path / ".executor_info").write_text("damaged")
    (found,) = find_steps(world.look(), str(path))
    assert found.name == "old"
    assert find_steps(world.look(), str(path.parent)) == []


def test_nothing_that_is_meant(world: ActiveWorld) -> None:
    with pytest.raises(NotFoundError, match=r"no step 'x' in your active runs.*jobs list`.*`marin-rules show STEP`"):
        the_only(find_steps(world.look(), "x"), "x")


def test_a_run_by_its_id_or_the_beginning_of_it(world: ActiveWorld) -> None:
    plan = world.run("a")
    world.cloud.add("7", JobTag("gone-1", "b-123456", "0123456789ab"))
    survey = world.look()
    assert find_run(survey, plan.run.id) == plan.run.id
    assert find_run(survey, plan.run.id[:-2]) == plan.run.id
    assert find_run(survey, "gone") == "gone-1"
    assert find_run(survey, "") is None
    assert find_run(survey, "nobody") is None


def test_part_of_a_file_name_is_no_run(world: ActiveWorld) -> None:
    world.cloud.add("7", JobTag("train-20261116-225152-f0d326", "b-123456", "0123456789ab"))
    survey = world.look()
    assert find_run(survey, "train-2") == find_run(survey, "train") == "train-20261116-225152-f0d326"
    assert find_run(survey, "tr") is None, "may be a step that is not there"


def test_the_beginning_of_several_runs(world: ActiveWorld) -> None:
    for name in ("gone-1", "gone-10", "gone-2"):
        world.cloud.add(name, JobTag(name, "b-123456", "0123456789ab"))
    survey = world.look()
    assert find_run(survey, "gone-1") == "gone-1", "a whole id is never a beginning"
    with pytest.raises(NotFoundError, match="several runs; write more of it: gone-1, gone-10, gone-2"):
        find_run(survey, "gone")


def test_a_step_that_no_run_wants_is_found_all_the_same(world: ActiveWorld) -> None:
    plan = world.run("a")
    world.finish(world.work(plan.steps[0]), plan.steps[0], Status.SUCCESS)
    (found,) = find_steps(world.look(), "a")
    assert world.look().of_step(found) == []
