"""Plans: what would go wrong silently in a run is refused before it starts, by the name of the step."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from marin_rules import (
    THIS_OUTPUT_PATH,
    Executor,
    ExecutorStep,
    InputName,
    PlanError,
    SnakemakeRule,
    mirrored,
    output_path_of,
    remote,
    this_output_path,
    versioned,
)
from marin_rules.plan import Plan, make_plan
from marin_rules.plans.stores import check_stores

REPOSITORY = Path(__file__).resolve().parents[1]


def run(config: Any) -> None:
    """A step's function; never called here."""


def other_function(config: Any) -> None:
    """Another one."""


def step(name: Any, config: Any = None, **details: Any) -> ExecutorStep[Any]:
    return ExecutorStep(**({"name": name, "fn": run, "config": config} | details))


def planned(*roots: ExecutorStep[Any] | InputName) -> Plan:
    return make_plan(roots, prefix="/p")


def names(plan: Plan, *, needed: bool = True) -> list[str]:
    return [item.name for item in plan.steps if item.needed or not needed]


def path_of(name: str, config: dict[str, Any] | None = None) -> str:
    """The path of a step without dependencies, computed here."""
    text = json.dumps({"config": config or {}, "dependencies": [], "name": name}, sort_keys=True)
    return f"/p/{name}-{hashlib.md5(text.encode()).hexdigest()[:6]}"


@dataclass(frozen=True)
class Config:
    value: Any
    output_path: str = THIS_OUTPUT_PATH


class Sentinel(Enum):
    """The usual way to write a default that is not None; its value has nothing but an address."""

    MISSING = object()


A = step("a")
A_PATH = "/p/a-d85366"


# --- a plan


def test_a_plan_has_paths_and_configs_resolved_and_dependencies_first() -> None:
    raw = step("raw", Config(versioned(1)))
    side = step("side", Config(output_path_of(raw, "x")))
    top = step("top", Config([side, raw / "y", raw, InputName.hardcoded("given")]))
    plan = planned(top)
    assert names(plan) == ["raw", "side", "top"]
    raw_path, side_path, top_path = (item.output_path for item in plan.steps)
    assert raw_path == path_of("raw", {"value": 1})
    assert plan.steps[0].config == Config(1, raw_path)
    assert plan.steps[1].config == Config(f"{raw_path}/x", side_path)
    assert plan.steps[2].config == Config([side_path, f"{raw_path}/y", raw_path, "/p/given"], top_path)
    assert [item.index for item in plan.steps] == [0, 1, 2]
    assert [item.dependencies for item in plan.steps] == [(), (0,), (1, 0)]
    assert plan.steps[2].mentions == (1, 0, 0), "the version counts repeats"
    assert plan.roots == (2,)
    assert plan.warnings == ()


def test_the_order_is_that_of_the_executor() -> None:
    below, beside = step("below"), step("beside")
    middle = step("middle", [output_path_of(beside).nonblocking(), below])
    roots = [step("first", [middle]), step("second", [beside, below])]
    executor = Executor("/p", "/p/experiments")
    for root in roots:
        executor.compute_version(root, is_pseudo_dep=False)
    plan = planned(*roots)
    assert [item.step for item in plan.steps] == executor.steps
    assert {item.step: item.output_path for item in plan.steps} == executor.output_paths


def test_equal_steps_are_one() -> None:
    one, two = step("t", {"v": versioned(1), "plain": "first"}), step("t", {"v": versioned(1), "plain": "second"})
    plan = planned(step("x", [one]), step("y", [two]), two, one)
    assert names(plan) == ["t", "x", "y"]
    assert plan.steps[0].config == {"v": 1, "plain": "first"}
    assert [item.dependencies for item in plan.steps] == [(), (0,), (0,)]
    assert plan.roots == (1, 2, 0)


def test_equal_steps_with_one_override_are_one() -> None:
    one, two = (step("t", override_output_path="/elsewhere/t") for _ in range(2))
    plan = planned(step("x", [one / "f"]), step("y", [two / "f"]))
    assert [item.output_path for item in plan.steps[:1]] == ["/elsewhere/t"]
    assert plan.steps[1].config == plan.steps[2].config == ["/elsewhere/t/f"]


def test_equal_steps_with_other_functions_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    plan = planned(step("t"), step("t", fn=other_function))
    assert len(plan.steps) == 1
    assert plan.steps[0].step.fn is run
    assert "two steps named t" in caplog.text
    assert "other_function" in caplog.text


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("x/y", "/p/x/y"),
        ("/x/y", "/x/y"),
        ("gs://bucket/y", "gs://bucket/y"),
        ("/x/../y", "/x/../y"),
        (None, path_of("b")),
    ],
)
def test_overrides(override: str | None, path: str) -> None:
    plan = planned(step("c", step("b", override_output_path=override) / "f"))
    assert plan.steps[0].output_path == path
    assert plan.steps[1].config == f"{path}/f"


def test_a_path_in_a_step_asks_for_the_step() -> None:
    assert names(planned(A / "x")) == ["a"]


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (run, f"{__name__}.run"),
        (remote(run), f"{__name__}.run"),
        (lambda config: None, f"{__name__}.<lambda>"),
        (SnakemakeRule("count"), "rule count"),
        (print, "builtins.print"),
    ],
)
def test_functions_have_names_without_addresses(fn: Any, name: str) -> None:
    assert planned(step("b", fn=fn)).steps[0].function_name == name


@pytest.mark.parametrize(
    "name",
    [
        "with space",
        "ünï/日本語",
        "{braces}",
        "'single' \"double\"",
        "a//b",
        "./a",
        "a/.hidden",
        "100%#$*?;&|\\<>",
        "-dash",
        "~tilde",
        "trailing/",
        "a..b/...",
        "x=1,y=2@z+w",
        "gs://bucket/x",
    ],
)
def test_odd_names_are_planned(name: str) -> None:
    user = step("user", [step(name) / "f"])
    plan = planned(user)
    assert plan.steps[0].output_path == path_of(name)
    assert plan.steps[1].config == [f"{path_of(name)}/f"]


# --- what other steps need


def test_a_nonblocking_reference_runs_nothing() -> None:
    source = step("source")
    middle = step("middle", [source])
    plan = planned(step("top", [output_path_of(middle, "x").nonblocking()]))
    assert names(plan) == ["top"]
    assert names(plan, needed=False) == ["source", "middle", "top"]
    middle_path = plan.steps[1].output_path
    assert plan.steps[2].config == [f"{middle_path}/x"]
    assert plan.steps[2].dependencies == ()
    assert plan.steps[2].pseudo_mentions == (1,)


@pytest.mark.parametrize("turned", [False, True])
def test_a_nonblocking_step_that_is_needed_after_all_has_its_dependencies(turned: bool) -> None:
    source = step("source")
    middle = step("middle", [source])
    roots = [step("light", [output_path_of(middle).nonblocking()]), step("heavy", [middle])]
    plan = planned(*(reversed(roots) if turned else roots))
    assert sorted(names(plan)) == ["heavy", "light", "middle", "source"]
    by_name = {item.name: item for item in plan.steps}
    assert by_name["heavy"].dependencies == (by_name["middle"].index,)
    assert by_name["middle"].dependencies == (by_name["source"].index,)
    assert by_name["light"].dependencies == ()


@pytest.mark.parametrize("turned", [False, True])
def test_twins_one_nonblocking_and_one_needed(turned: bool) -> None:
    source = step("source")
    twins = [step("twin", [source]) for _ in range(2)]
    roots = [step("light", [output_path_of(twins[0]).nonblocking()]), step("heavy", [twins[1]])]
    plan = planned(*(reversed(roots) if turned else roots))
    assert sorted(names(plan)) == ["heavy", "light", "source", "twin"]
    assert len(plan.steps) == 4
    by_name = {item.name: item for item in plan.steps}
    assert by_name["heavy"].dependencies == (by_name["twin"].index,)
    assert by_name["light"].config == by_name["heavy"].config == [by_name["twin"].output_path]


@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_step_in_a_set_is_a_dependency_and_resolved(kind: type) -> None:
    plan = planned(step("b", {"inputs": kind([A])}))
    assert names(plan) == ["a", "b"]
    assert plan.steps[1].dependencies == (0,)
    assert plan.steps[1].config == {"inputs": kind([A_PATH])}
    assert type(plan.steps[1].config["inputs"]) is kind


def test_a_dataclass_type_in_a_config() -> None:
    plan = planned(step("b", {"type": Config, "a": A}))
    assert plan.steps[1].config == {"type": Config, "a": A_PATH}


# --- refusals


def refused(*roots: ExecutorStep[Any], match: str) -> None:
    with pytest.raises(PlanError, match=match):
        planned(*roots)


def test_six_digits_that_collide() -> None:
    one, two = step("s", versioned(1082)), step("s", versioned(5308))
    with pytest.raises(PlanError, match="two versions share the output path /p/s-2bd337") as caught:
        planned(one, two)
    assert "step 's' (2bd3373b22ff939132dd421c1d650a06)" in str(caught.value)
    assert "step 's' (2bd33722c239e13e7f1f5ae7f7283309)" in str(caught.value)
    assert "override_output_path" in str(caught.value), "the way out"
    plan = planned(one, two.with_output_path("/p/other"))
    assert [item.output_path for item in plan.steps] == ["/p/s-2bd337", "/p/other"]


@pytest.mark.parametrize("other", ["/x/y", "/x//y", "/x/y/", "/x/./y"])
def test_two_steps_in_one_place(other: str) -> None:
    refused(
        step("one", override_output_path="/x/y"),
        step("two", override_output_path=other),
        match="two versions share the output path .*: step 'one' .* and step 'two'",
    )


def test_twins_whose_overrides_are_spelt_differently_are_one() -> None:
    plan = planned(step("x", [step("t", override_output_path="/e/t")]), step("t", override_output_path="/e//t/"))
    assert [item.output_path for item in plan.steps if item.name == "t"] == ["/e/t"]


def test_two_versions_in_one_folder_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    paths = [f"{tmp_path}/{name}" for name in ("real/s", "link/s", "real/../link/s", "other/s")]
    for path in paths[1:3]:
        plan = planned(step("one", override_output_path=paths[0]), step("two", override_output_path=path))
        with pytest.raises(PlanError, match=f"{paths[0]}, which is also {path}: step 'one' .* and step 'two'"):
            check_stores(plan)
    check_stores(planned(step("one", override_output_path=paths[0]), step("two", override_output_path=paths[3])))
    hashed = step("two", override_output_path=f"{tmp_path}/link/{os.path.basename(path_of('s'))}")
    with pytest.raises(PlanError, match="which is also"):
        check_stores(make_plan([step("s"), hashed], prefix=str(tmp_path / "real")))


def test_twins_with_different_overrides() -> None:
    plain, moved = step("twin"), step("twin", override_output_path="/elsewhere")
    expected = f"step 'twin' .* different output paths, {path_of('twin')} and /elsewhere"
    refused(step("x", [plain]), step("y", [moved]), match=expected)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([A], r"value\[0\]"),
        ({"k": (1, A / "x")}, r"value\.k\[1\]"),
        (Config(A), r"value\.value"),
        (mirrored(A), r"value"),
        (A, "value"),
        ([InputName.hardcoded("raw")], r"value\[0\]"),
    ],
)
def test_a_step_inside_a_versioned_value(value: Any, field: str) -> None:
    refused(step("b", Config(versioned(value))), match=rf"step 'b', .*{field}.*: a step is inside versioned")


def test_a_step_in_a_set_inside_a_versioned_value() -> None:
    refused(step("b", Config(versioned({step("rule", fn=SnakemakeRule("count"))}))), match="step 'b'")


def test_steps_in_a_circle() -> None:
    config: list[Any] = []
    first = step("first", config)
    second = step("second", {"x": first})
    third = step("third", [second])
    config.append(output_path_of(third).nonblocking())
    refused(second, match="circle: second -> first -> third -> second")
    alone: list[Any] = []
    alone.append(step("alone", alone))
    refused(step("outer", alone), match="circle: alone -> alone")


@pytest.mark.parametrize("name", ["", " ", "/", "//", None, 3])
def test_no_name(name: Any) -> None:
    refused(step(name), match=rf"a step with function {__name__}\.run has no name")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/data", "starts with a slash"),
        ("../data", r"climbs with '\.\.'"),
        ("a/../b", r"climbs with '\.\.'"),
        ("..", r"climbs with '\.\.'"),
        ("a\nb", "control character"),
        ("a\0b", "control character"),
    ],
)
def test_names_that_leave_the_prefix_or_cannot_be_shown(name: str, message: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        planned(step("user", [step(name)]))
    assert f"step {name!r}" in str(caught.value)


@pytest.mark.parametrize("override", ["../x", "x/../../y", "", " "])
def test_overrides_that_leave_the_prefix(override: str) -> None:
    refused(step("b", override_output_path=override), match="step 'b': override_output_path")


@pytest.mark.parametrize("path", ["a:../../x", "a:b"])
def test_paths_that_only_look_like_urls(path: str) -> None:
    # Marin takes what stands before the colon for a scheme, so these are relative to the working directory.
    refused(step("b", override_output_path=path), match="step 'b': override_output_path")
    refused(step("b", Config(InputName.hardcoded(path))), match="step 'b', .*value.*hard-coded path")


@pytest.mark.parametrize(
    "reference",
    [
        A / "../x",
        A / "x/../../y",
        A / "/x",
        output_path_of(A, "..").nonblocking(),
        A / "gs://bucket/x",
        this_output_path("../x"),
        this_output_path("/x"),
        InputName.hardcoded("../x"),
        InputName.hardcoded("a/../../x"),
        InputName.hardcoded(""),
        InputName(None, None),
    ],
)
@pytest.mark.parametrize("wrap", [lambda item: item, lambda item: [{"k": item}], mirrored, lambda item: {item}])
def test_references_that_leave_their_place(reference: Any, wrap: Callable[[Any], Any]) -> None:
    refused(step("b", Config(wrap(reference))), match="step 'b'")


def test_a_refused_reference_tells_the_field() -> None:
    refused(step("b", Config([A / "../x"])), match=r"step 'b', .*value.*'\.\./x' is not below the output path")
    hard = InputName.hardcoded("../x")
    refused(step("b", Config([hard])), match=r"step 'b', .*value.*the hard-coded path '\.\./x' climbs out")


@pytest.mark.parametrize("name", ["train:0.jsonl", "step-10:final", "x/gs:y"])
def test_a_file_with_a_colon_is_an_ordinary_file(name: str) -> None:
    assert planned(step("b", [A / name])).steps[1].config == [f"{A_PATH}/{name}"]


@pytest.mark.parametrize(
    "value",
    [
        object(),
        lambda: None,
        run,
        [object()],
        {"k": (object(),)},
        Config(lambda: None),
        {object()},
        Sentinel.MISSING,
        [Sentinel.MISSING],
    ],
    ids=lambda value: type(value).__name__,
)
def test_versioned_memory_addresses(value: Any) -> None:
    refused(step("b", Config(versioned(value))), match="step 'b', .*value.*address")


@pytest.mark.parametrize("value", [print, int, Config, ..., b"x", 1j, range(3)], ids=str)
def test_versioned_values_whose_text_is_stable(value: Any) -> None:
    assert planned(step("b", {"x": versioned(value)})).steps[0].output_path == path_of("b", {"x": str(value)})


@pytest.mark.parametrize(
    "value",
    [{1, 2}, frozenset("ab"), [{1, 2}], {"k": Config({"a", "b"})}],
    ids=["set", "frozenset", "in a list", "in a dataclass"],
)
def test_versioned_sets(value: Any) -> None:
    refused(step("b", Config(versioned(value))), match="step 'b', .*value.*: a versioned set has no stable order")


@pytest.mark.parametrize(
    "items",
    [
        lambda: {A, step("other")},
        lambda: {A / "x", A / "y"},
        lambda: {versioned(1), versioned(2)},
        lambda: frozenset([A, versioned(1)]),
        lambda: {(A, step("other"))},
        lambda: {frozenset([A]), versioned(1)},
    ],
    ids=["steps", "paths", "values", "frozenset", "in a tuple", "nested"],
)
def test_sets_with_two_references(items: Callable[[], Any]) -> None:
    value = items()
    if len(value) == 1:
        # The order inside of the tuple is its own: nothing is unstable.
        assert names(planned(step("b", Config(value)))) == ["a", "other", "b"]
    else:
        refused(step("b", Config(value)), match="step 'b'.* set has no stable order.* Use a list")


@pytest.mark.parametrize("reference", [A, versioned(1), InputName.hardcoded("raw")], ids=["step", "value", "path"])
def test_sets_with_a_reference_and_other_items(reference: Any) -> None:
    # The place of the reference among the others enters the version, and is another in every process.
    refused(step("b", Config({reference, "x", "y"})), match="step 'b'.* set has no stable order")


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ({this_output_path("x"), this_output_path("y")}, {"/p/b/x", "/p/b/y"}),
        ({mirrored("x"), mirrored("y"), "z"}, {"mirror://x", "mirror://y", "z"}),
    ],
)
def test_sets_that_say_nothing_about_identity(items: Any, expected: Any) -> None:
    plan = planned(step("b", {"s": items}, override_output_path="b"))
    assert plan.steps[0].config == {"s": expected}


@pytest.mark.processes
def test_a_reference_among_others_in_a_set_would_have_many_paths() -> None:
    code = (
        "from marin_rules import *; "
        "print(compute_output_path('b', {'s': {versioned(1), 'x', 'y', 'z', 'u', 'v'}}, prefix='/p'))"
    )
    paths = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY), "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(paths) > 1, "if identity is stable here, the plan need not refuse it"


def test_no_function() -> None:
    refused(step("user", [step("b", fn="train")]), match="step 'b'.*fn is a str")


@pytest.mark.parametrize("report", [["../x.png"], ["/x.png"], [""], ["ok.png", "a/../../x"], "*.png"], ids=str)
def test_reports_of_other_places(report: Any) -> None:
    refused(step("b", report=report), match="step 'b': report")


def test_keys_that_are_no_strings() -> None:
    refused(step("user", [step("b", {"x": {1: 2}})]), match=r"step 'b'.*must be strings: 1 \(int\) at x")


@pytest.mark.parametrize("kind", ["mixed keys", "circular", "too deep"])
def test_versioned_values_that_json_cannot_write(kind: str) -> None:
    value: Any = []
    if kind == "mixed keys":
        value = {1: "a", "b": 2}
    elif kind == "circular":
        value.append(value)
    else:
        for _ in range(100_000):
            value = [value]
    refused(step("user", [step("culprit", {"x": versioned(value)})]), match="step 'culprit'")


@pytest.mark.processes
def test_a_config_that_holds_itself() -> None:
    code = (
        "from marin_rules import ExecutorStep\n"
        "from marin_rules.plan import make_plan\n"
        "config = []\n"
        "config.append(config)\n"
        "make_plan([ExecutorStep('culprit', print, config)], prefix='/p')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "PlanError: step 'culprit'" in ended.stderr


def test_a_config_that_cannot_be_rebuilt() -> None:
    class Stubborn(Config):
        def __init__(self, value: Any) -> None:
            super().__init__(value)

    refused(step("b", Stubborn(A)), match="step 'b': its config cannot be resolved: .*output_path")
