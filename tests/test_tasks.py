"""Array steps as they are declared: the number of tasks, and which files are a task's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_rules import (
    ExecutorStep,
    PlanError,
    ResourceConfig,
    SnakemakeRule,
    ThisProcess,
    remote,
    shards_of_this_task,
)
from marin_rules.machines import tasks_of
from marin_rules.plan import make_plan
from marin_rules.tasks import check_tasks
from support.small_plans import plan_of, step


def work(config: Any) -> None:
    """The function of all steps; never called."""


# --- shards

file_names = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), max_size=60)


def shards(files: Any, tasks: int) -> list[list[Any]]:
    """What each of the tasks gets."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for task in range(tasks):
            for name, value in ThisProcess(task=task, tasks=tasks).to_variables().items():
                patch.setenv(name, value)
            found.append(shards_of_this_task(files))
    return found


@given(file_names, st.integers(1, 70))
def test_all_files_are_dealt_out_each_to_one_task_as_evenly_as_can_be(files: list[str], tasks: int) -> None:
    dealt = shards(files, tasks)
    assert sorted(itertools.chain(*dealt)) == sorted(files)
    sizes = [len(shard) for shard in dealt]
    assert max(sizes) - min(sizes) <= 1
    assert all(shard == sorted(shard) for shard in dealt)


@given(file_names, st.integers(1, 12), st.randoms())
def test_the_order_in_which_a_machine_lists_the_files_makes_no_difference(
    files: list[str], tasks: int, chance: Any
) -> None:
    shuffled = list(files)
    chance.shuffle(shuffled)
    assert shards(shuffled, tasks) == shards(files, tasks)


def test_paths_and_anything_that_can_be_gone_through_once() -> None:
    paths = [PurePosixPath("b"), PurePosixPath("a"), PurePosixPath("c")]
    assert shards(paths, 2) == [[PurePosixPath("a"), PurePosixPath("c")], [PurePosixPath("b")]]
    assert shards_of_this_task(name for name in ("b", "a")) == ["a", "b"], "outside of steps: all of them"


# --- how many


@pytest.mark.parametrize("tasks", [None, 1, 2, 100_000])
def test_a_number_of_tasks(tasks: int | None) -> None:
    check_tasks(tasks)


WRONG = [
    (0, ValueError, "at least once"),
    (-3, ValueError, "tasks is -3"),
    (1_000_001, ValueError, "at most 1000000"),
    (True, TypeError, "tasks is True, not a whole number"),
    (4.0, TypeError, "tasks is 4.0, not a whole number"),
    ("4", TypeError, "tasks is '4', not a whole number"),
]


@pytest.mark.parametrize(("tasks", "kind", "words"), WRONG)
def test_what_is_no_number_of_tasks(tasks: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        remote(work, tasks=tasks)
    with pytest.raises(PlanError, match=rf"step 'many': .*{words}"):
        make_plan([ExecutorStep(name="many", fn=work, config={}, tasks=tasks)], prefix="out")


def test_tasks_do_not_go_with_tpus() -> None:
    made = step("many", fn=remote(work, tasks=3), resources=ResourceConfig.with_tpu("v4-8"))
    with pytest.raises(PlanError, match=r"step 'many': tasks=3 and a TPU v4-8 do not go together"):
        make_plan([made], prefix="out")


def test_tasks_do_not_go_with_replicas() -> None:
    two_machines = ResourceConfig.with_cpu(replicas=2)
    for made in (
        step("many", fn=work, resources=two_machines, tasks=3),
        step("many", fn=remote(work, resources=two_machines, tasks=3)),
        step("many", fn=remote(work, tasks=3), resources=two_machines),
    ):
        with pytest.raises(PlanError, match=r"step 'many': tasks=3 and replicas=2 do not go together"):
            make_plan([made], prefix="out")
    make_plan([step("many", fn=remote(work, tasks=3), resources=ResourceConfig.with_cpu(replicas=1))], prefix="out")


def test_tasks_of_a_hand_written_rule() -> None:
    with pytest.raises(PlanError, match=r"step 'many': tasks are calls of a Python function, and the rule align is"):
        make_plan([ExecutorStep(name="many", fn=SnakemakeRule("align"), config={}, tasks=3)], prefix="out")


@pytest.mark.parametrize(
    ("own", "of_function", "expected"), [(None, None, None), (None, 5, 5), (7, None, 7), (7, 5, 7), (1, 5, 1)]
)
def test_the_number_of_the_step_wins_over_that_of_its_function(
    own: int | None, of_function: int | None, expected: int | None, tmp_path: Path
) -> None:
    made = ExecutorStep(name="many", fn=remote(work, tasks=of_function), config={}, tasks=own)
    assert tasks_of(made) == expected
    assert plan_of(tmp_path, made).steps[0].tasks == expected


@pytest.mark.parametrize(
    "divide",
    [
        lambda tasks: ExecutorStep(name="many", fn=work, config={}, tasks=tasks),
        lambda tasks: ExecutorStep(name="many", fn=remote(work, tasks=tasks), config={}),
    ],
    ids=["step", "function"],
)
def test_the_number_is_no_part_of_the_version(
    divide: Callable[[int | None], ExecutorStep[Any]], tmp_path: Path
) -> None:
    made = [plan_of(tmp_path, divide(tasks)).steps[0] for tasks in (None, 1, 64)]
    assert len({(item.digest, item.key, item.output_path) for item in made}) == 1
