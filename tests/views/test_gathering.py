"""The facts of a report: what stands in the folders of steps, and what cannot be read there."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from marin_rules import ExecutorStep, output_path_of
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.state.status import Status, read_statuses
from marin_rules.views.gathering import files_below, gather
from marin_rules.views.spreadsheet import Table
from marin_rules.views.step_facts import Picture, Reference, StepFacts
from support.small_plans import compute, leave_status, leave_tasks, plan_of, step


def gathered(plan: FrozenPlan) -> list[StepFacts]:
    return gather(plan, read_statuses([item.output_path for item in plan.steps]), lambda item: f"{item.name}.html")


def leave(plan: FrozenPlan, file: str, content: str | bytes, index: int = 0) -> None:
    path = Path(plan.steps[index].output_path, file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def finished(folder: Path, status: Status | None = Status.SUCCESS, **files: str | bytes) -> StepFacts:
    """The facts of one step in this state, with these files beside its status."""
    plan = plan_of(folder, step("a"))
    if status is not None:
        leave_status(plan.steps[0], status)
    for file, content in files.items():
        leave(plan, FILES[file], content)
    (facts,) = gathered(plan)
    return facts


FILES = {"info": ".executor_info", "artifact": ".artifact.json", "log": ".executor_log", "status": ".executor_status"}


def test_steps_know_what_they_use_and_who_uses_them(tmp_path: Path) -> None:
    a = step("a")
    b, c = step("b", a), step("c", a)
    plan = plan_of(tmp_path, b, c)
    facts = {found.name: found for found in gathered(plan)}
    paths = {item.name: item.output_path for item in plan.steps}
    references = {
        item.name: Reference(item.index, item.name, paths[item.name], f"{item.name}.html") for item in plan.steps
    }
    assert facts["a"].dependencies == []
    assert facts["a"].dependents == [references["b"], references["c"]]
    assert facts["b"].dependencies == [references["a"]]
    assert facts["b"].dependents == []
    assert [found.page for found in facts.values()] == ["a.html", "b.html", "c.html"]


def test_a_step_that_is_only_mentioned_has_no_page(tmp_path: Path) -> None:
    old = step("old")
    top = ExecutorStep("top", compute, [output_path_of(old).nonblocking()])
    plan = plan_of(tmp_path, top)
    assert [facts.name for facts in gathered(plan)] == [item.name for item in plan.steps if item.needed] == ["top"]


@pytest.mark.parametrize("status", [None, *Status])
def test_what_is_told_in_which_state(status: Status | None, tmp_path: Path) -> None:
    """A log of what is not done, a value of what is; of a step that never ran, nothing that lies about."""
    info = json.dumps({"run": {"seconds": 61, "error": "no"}})
    facts = finished(tmp_path, status, info=info, artifact="[1, 2]", log="one\ntwo\n")
    assert facts.status == ("not run" if status is None else status)
    assert facts.returned == ([1, 2] if status is Status.SUCCESS else None)
    assert list(facts.log) == ([] if status in (None, Status.SUCCESS) else ["one", "two"])
    assert (facts.runtime, facts.error) == (("", "") if status is None else ("1m01s", "no"))
    assert facts.troubles == []


@pytest.mark.parametrize(
    ("files", "trouble"),
    [
        ({"info": "{"}, ".executor_info is damaged"),
        ({"info": "[]"}, "it is not a JSON object"),
        ({"info": '{"run": 7}'}, "its `run` is not a JSON object"),
        ({"info": b"\xff\xfe"}, ".executor_info is damaged"),
        ({"artifact": "{"}, ".artifact.json is not JSON"),
        ({"artifact": "[" * 100_000}, "recursion"),
        ({"status": "SUCC"}, "which is not a status"),
    ],
)
def test_what_cannot_be_read_is_told_and_hides_nothing_else(
    files: dict[str, str | bytes], trouble: str, tmp_path: Path
) -> None:
    whole: dict[str, str | bytes] = {"info": '{"run": {"error": "told"}}', "artifact": "5"}
    facts = finished(tmp_path, **{**whole, **files})
    (told,) = facts.troubles
    assert trouble in told
    assert facts.status == ("damaged" if "status" in files else "SUCCESS")
    assert facts.error == ("" if "info" in files else "told")
    assert facts.returned == (None if files.keys() & {"artifact", "status"} else 5)


def test_a_very_large_value_is_only_named(tmp_path: Path) -> None:
    assert finished(tmp_path / "a", artifact=json.dumps("x" * (2**20 - 2))).returned == "x" * (2**20 - 2)
    facts = finished(tmp_path / "b", artifact=json.dumps("x" * (2**20 - 1)))
    assert facts.returned == f"1,048,577 bytes in {facts.output_path}/.artifact.json"


@pytest.mark.parametrize(
    ("status", "missing"),
    [
        (None, []),
        (Status.RUNNING, []),
        (Status.DEP_FAILED, []),
        (Status.SUCCESS, ["never.svg"]),
        (Status.FAILED, []),
        (Status.CANCELLED, []),
    ],
)
def test_files_for_the_report(status: Status | None, missing: list[str], tmp_path: Path) -> None:
    """Patterns may meet in a file, and what is not done may still write its own."""
    plan = plan_of(tmp_path, step("a", report=["plots/*.svg", "plots/loss*", "never.svg"]))
    if status is not None:
        leave_status(plan.steps[0], status)
    for name in ("plots/loss.svg", "plots/loss.csv", "plots/deep/more.svg", "other.txt"):
        leave(plan, name, "")
    (facts,) = gathered(plan)
    found = ["plots/deep/more.svg", "plots/loss.csv", "plots/loss.svg"]
    assert facts.report_files == ([] if status is None else found)
    assert facts.missing_report_files == missing


def test_pictures_for_the_pages(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, step("a", report=["*"]))
    leave_status(plan.steps[0], Status.SUCCESS)
    for name, text in (
        ("b.svg", "<svg/>"),
        ("a.PNG", "bytes"),
        ("empty.png", ""),
        ("table.csv", "x"),
        ("big.svg", "x" * 2**22),
    ):
        leave(plan, name, text)
    (facts,) = gathered(plan)
    assert facts.pictures == [
        Picture("a.PNG", "data:image/png;base64," + base64.b64encode(b"bytes").decode()),
        Picture("b.svg", "data:image/svg+xml;base64," + base64.b64encode(b"<svg/>").decode()),
    ]


def test_tables_for_the_pages(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, step("a", report=["*"]))
    leave_status(plan.steps[0], Status.SUCCESS)
    long = "n\n" + "".join(f"{number}\n" for number in range(50))
    for name, text in (
        ("b.csv", 'name,score\n"a, b",1\n'),
        ("a.tsv", "x\ty\n1\t2\n"),
        ("empty.csv", ""),
        ("long.csv", long),
        ("big.csv", "x" * 2**20),
    ):
        leave(plan, name, text)
    (facts,) = gathered(plan)
    assert facts.tables == [
        Table("a.tsv", ["x", "y"], [["1", "2"]]),
        Table("b.csv", ["name", "score"], [["a, b", "1"]]),
        Table("long.csv", ["n"], [[str(number)] for number in range(40)], is_cut=True),
    ]


def test_files_below_a_step(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c" / "d.txt").write_text("")
    (tmp_path / "a").write_text("")
    assert files_below(str(tmp_path)) == ["a", "b/c/d.txt"]
    assert files_below(str(tmp_path / "nothing")) == []


def test_how_far_an_array_step_is(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, step("a", tasks=4), step("b", tasks=3), step("c", tasks=2), step("d"))
    paths = {item.name: item.output_path for item in plan.steps}
    leave_status(plan.steps[0], Status.FAILED)
    leave_tasks(paths["a"], Status.SUCCESS, Status.FAILED, Status.RUNNING, None)
    leave_status(plan.steps[1], Status.SUCCESS)
    found = {facts.name: facts.tasks for facts in gathered(plan)}
    assert found == {"a": "1/4, 1 running, 1 failed", "b": "3/3", "c": "", "d": ""}


def test_the_books_of_tasks_are_no_files_for_the_report(tmp_path: Path) -> None:
    leave_tasks(str(tmp_path), Status.SUCCESS)
    (tmp_path / "plot.json").touch()
    assert files_below(str(tmp_path)) == ["plot.json"]
