"""StepSpecs: what a plan makes of them, alone and among ExecutorSteps."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_rules import (
    Executor,
    ExecutorStep,
    ResourceConfig,
    StepSpec,
    output_path_of,
    remote,
    resolve_executor_step,
    this_output_path,
    upstream_steps,
    versioned,
)
from marin_rules.errors import PlanError
from marin_rules.functions import function_name
from marin_rules.plan import make_plan
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.prepare import PlanSettings, prepare


def work(path: str) -> None: ...


def use(config: dict[str, Any]) -> None: ...


@pytest.fixture(autouse=True)
def prefix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path))
    return str(tmp_path)


def planned(*steps: Any, prefix: str) -> FrozenPlan:
    return prepare(steps, PlanSettings(prefix=prefix, caller_path="x.py", asks_stores=False))


def test_the_hash_is_that_of_the_sorted_json() -> None:
    """Worked out by hand, beside the golden graphs: the name, the attributes, and the dependencies in any order."""
    a, b = StepSpec("a", fn=work), StepSpec("b", hash_attrs={"n": 1}, fn=work)
    content = json.dumps({"attrs": {}, "deps": sorted([a.name_with_hash, b.name_with_hash]), "name": "c"})
    digest = hashlib.sha256(content.encode()).hexdigest()
    for deps in ([a, b], [b, a]):
        assert StepSpec("c", deps=deps).name_with_hash == f"c_{digest[:8]}"


def test_paths(prefix: str) -> None:
    assert StepSpec("a").output_path == f"{prefix}/a_{StepSpec('a').hash_id}"
    assert StepSpec("a", output_path_prefix="gs://b").output_path == f"gs://b/a_{StepSpec('a').hash_id}"
    assert StepSpec("a", override_output_path="x/y").output_path == f"{prefix}/x/y"
    assert StepSpec("a", override_output_path="/x").output_path == "/x"
    assert StepSpec("a", override_output_path="s3://b/x").output_path == "s3://b/x"


def digits_of(spec: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """Marin's rule once more, in the fewest words."""
    deps = sorted(f"{others[dep]['name']}_{digits_of(others[dep], others)}" for dep in spec["deps"])
    content = json.dumps({"name": spec["name"], "attrs": spec["attrs"], "deps": deps}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:8]


NAMES = st.text("aé/_- .", min_size=1, max_size=4)
ATTRIBUTES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def spec_graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        {
            "name": draw(NAMES),
            "attrs": draw(st.dictionaries(st.text(max_size=2), ATTRIBUTES, max_size=2)),
            "deps": draw(st.lists(st.integers(0, position - 1), max_size=3)) if position else [],
            "prefix": draw(st.sampled_from(["/p", "/p/", "gs://b", "s3://b/x"])),
            "override": draw(st.sampled_from([None, None, "x/y", "../z", "/o//v", "gs://o/v", "file:///o"])),
        }
        for position in range(draw(st.integers(1, 6)))
    ]


@given(spec_graphs())
@settings(max_examples=60, deadline=None)
def test_any_graph_has_the_paths_of_the_rule(graph: list[dict[str, Any]]) -> None:
    specs: list[StepSpec] = []
    for node in graph:
        deps = [specs[dep] for dep in node["deps"]]
        specs.append(StepSpec(node["name"], node["prefix"], deps, node["attrs"], node["override"]))
        override = node["override"]
        path = f"{node['prefix']}/{node['name']}_{digits_of(node, graph)}" if override is None else override
        path = path if path.startswith("/") or ":" in path else f"{node['prefix']}/{path}"
        assert specs[-1].output_path == path
        executor = Executor(prefix="/elsewhere", executor_info_base_path="/elsewhere")
        step = specs[-1].as_executor_step()
        executor.compute_version(step, is_pseudo_dep=False)
        assert executor.output_paths[step] == path


def test_below_a_relative_prefix_a_path_does_not_depend_on_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marin would join it to the prefix of the run a second time."""
    monkeypatch.setenv("MARIN_PREFIX", "out")
    spec = StepSpec("a")
    assert spec.output_path == f"out/{spec.name_with_hash}"
    assert spec.as_executor_step().override_output_path == os.path.abspath(spec.output_path)


def test_a_path_stays_where_it_is_known(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions have it in their closures, and workers have another MARIN_PREFIX than whoever planned."""
    spec = StepSpec("a", fn=work)
    path = spec.output_path
    spec.as_executor_step()
    monkeypatch.setenv("MARIN_PREFIX", "/elsewhere")
    assert spec.output_path == path
    assert pickle.loads(pickle.dumps(spec)).output_path == path
    monkeypatch.setenv("MARIN_PREFIX", prefix)
    fresh = StepSpec("b", fn=work)
    copy = pickle.loads(pickle.dumps(fresh))
    monkeypatch.setenv("MARIN_PREFIX", "/elsewhere")
    assert copy.output_path == fresh.output_path == f"{prefix}/{fresh.name_with_hash}"


def test_attributes_that_json_does_not_have_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"StepSpec 'a': hash_attrs cannot be written as JSON .*PosixPath"):
        print(StepSpec("a", hash_attrs={"path": Path("/x")}).hash_id)


def test_both_kinds_of_steps_stand_in_one_plan(prefix: str) -> None:
    raw = StepSpec("raw", hash_attrs={"dump": "june"}, fn=work)
    tokens = ExecutorStep(
        "tokens", use, {"input": raw.as_executor_step(), "n": versioned(1), "out": this_output_path()}
    )
    clean = StepSpec("clean", deps=[raw], fn=work, resources=ResourceConfig(cpu=2))
    plan = planned(tokens, clean, prefix=prefix)
    steps = {step.name: step for step in plan.steps}
    assert list(steps) == ["raw", "tokens", "clean"]
    assert steps["tokens"].dependencies == steps["clean"].dependencies == (steps["raw"].index,)
    assert steps["raw"].output_path == raw.output_path
    assert steps["raw"].key == raw.name_with_hash
    assert steps["raw"].function == f"{__name__}.work"
    assert not steps["raw"].is_overridden
    assert steps["clean"].machines is not None
    assert plan.record(steps["raw"]).config == {"dump": "june"}
    assert plan.call(steps["tokens"]).config["input"] == raw.output_path


def test_a_function_is_called_with_its_path(prefix: str) -> None:
    seen: list[str] = []
    spec = StepSpec("a", fn=lambda path: seen.append(path))
    marked = StepSpec(
        "b", fn=remote(lambda path: seen.append(path), env_vars={"X": "1"}, resources=ResourceConfig(cpu=3))
    )
    for item in (spec, marked):
        step = item.as_executor_step()
        assert step.fn is not None
        (planned_step,) = make_plan([step], prefix=prefix).steps
        step.fn(planned_step.config)
    assert seen == [spec.output_path, marked.output_path]
    frozen = planned(marked, prefix=prefix).steps[0]
    assert frozen.machines is not None
    assert frozen.machines.cpu == 3
    assert frozen.variables == 0


def test_a_diamond_is_walked_once_and_a_long_chain_without_a_deep_stack(prefix: str) -> None:
    """Marin makes a step for every way through the graph, and hits Python's limit on a chain of a thousand."""
    layer = [StepSpec(f"a{i}", fn=work) for i in range(3)]
    for level in range(20):
        layer = [StepSpec(f"{level}-{i}", deps=layer, fn=work) for i in range(3)]
    assert len(planned(*layer, prefix=prefix).steps) == 63
    chain = StepSpec("chain-0", fn=work)
    for i in range(1, 2000):
        chain = StepSpec(f"chain-{i}", deps=[chain], fn=work)
    assert len(planned(chain, prefix=prefix).steps) == 2000


def test_a_circle_is_refused() -> None:
    deps: list[StepSpec] = []
    a = StepSpec("a", deps=deps, fn=work)
    deps.append(StepSpec("b", deps=[a], fn=work))
    with pytest.raises(PlanError, match=r"in a circle: \['a', 'b'\]"):
        a.as_executor_step()


def test_the_order_of_dependencies_makes_no_other_step(prefix: str) -> None:
    """The version of the ExecutorSteps differs, that of the StepSpecs does not: no collision, no second run."""
    a, b = StepSpec("a", fn=work), StepSpec("b", fn=work)
    one, two = StepSpec("c", deps=[a, b], fn=work), StepSpec("c", deps=[b, a], fn=work)
    assert [step.name for step in planned(one, two, prefix=prefix).steps] == ["a", "b", "c"]


def test_the_same_step_in_two_places_is_two_steps(prefix: str) -> None:
    here, there = (StepSpec("a", output_path_prefix=f"{prefix}/{place}", fn=work) for place in ("x", "y"))
    more = StepSpec("a", output_path_prefix=f"{prefix}/z", fn=work)
    plan = planned(here, there, more, dataclasses.replace(here), prefix=prefix)
    assert [step.output_path for step in plan.steps] == [here.output_path, there.output_path, more.output_path]
    assert len({step.key for step in plan.steps}) == 3


def test_two_steps_in_one_place_are_refused(prefix: str) -> None:
    one, two = (StepSpec("a", hash_attrs={"n": n}, override_output_path="same", fn=work) for n in (1, 2))
    with pytest.raises(PlanError, match=f"two versions share the output path {prefix}/same"):
        planned(one, two, prefix=prefix)


def test_a_function_that_takes_no_path_is_refused(prefix: str) -> None:
    spec = StepSpec("a", fn=lambda: None)  # type: ignore[misc,arg-type]
    with pytest.raises(PlanError, match=r"step 'a': .*cannot be called with the output path alone"):
        planned(spec, prefix=prefix)


@pytest.mark.parametrize("dependency", [ExecutorStep("raw", use, None), "/data/raw"], ids=["step", "path"])
def test_a_dependency_that_is_no_spec_is_named(dependency: Any, prefix: str) -> None:
    spec = StepSpec("clean", deps=[dependency], fn=work)
    with pytest.raises(TypeError, match=r"StepSpec 'clean': deps must be StepSpecs, and has .*raw"):
        _ = spec.hash_id
    with pytest.raises(TypeError, match="StepSpec 'clean': deps must be StepSpecs"):
        planned(StepSpec("top", deps=[spec], fn=work), prefix=prefix)


def test_a_closure_over_another_spec_is_no_lost_dependency(prefix: str) -> None:
    raw = StepSpec("raw", fn=work)
    spec = StepSpec("clean", deps=[raw], fn=lambda path: print(raw.output_path, path))
    assert len(planned(spec, prefix=prefix).steps) == 2


def test_a_spec_in_a_config_is_told_of(prefix: str) -> None:
    """As in Marin it is plain data there: a function may want to run it. It is not walked through."""
    spec = StepSpec("raw", fn=work)
    for level in range(40):
        spec = StepSpec(f"level{level}", deps=[spec, spec], fn=work)
    (plain, *_) = planned(ExecutorStep("use", use, {"data": None}), prefix=prefix).steps
    plan = planned(ExecutorStep("use", use, {"data": [spec]}), prefix=prefix)
    assert [step.output_path for step in plan.steps] == [plain.output_path]
    (warning,) = plan.warnings
    assert warning.startswith("step 'use', data.[0]: the StepSpec 'level39' is not a dependency there, ")


def test_a_path_in_a_spec_says_what_to_write(prefix: str) -> None:
    path: Any = output_path_of(StepSpec("raw", fn=work), "x")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"step 'use': a path refers to 'raw', which is a StepSpec, .*as_executor_step"):
        planned(ExecutorStep("use", use, {"data": path}), prefix=prefix)
    with pytest.raises(PlanError, match="a path refers to 'raw'"):
        planned(path, prefix=prefix)
    with pytest.raises(PlanError, match="a path refers to 'raw'"):
        upstream_steps([path])


def test_a_single_spec_is_no_list(prefix: str) -> None:
    with pytest.raises(PlanError, match=r"write steps=\[step\]"):
        make_plan(StepSpec("a", fn=work), prefix=prefix)  # type: ignore[arg-type]


def test_the_way_back(prefix: str) -> None:
    raw = StepSpec("raw", fn=work)
    spec = StepSpec("clean", deps=[raw], hash_attrs={"n": 1}, fn=work)
    back = resolve_executor_step(spec.as_executor_step(), config=None, output_path="unused")
    assert (back.name, back.hash_attrs, list(back.deps), back.fn) == ("clean", {"n": 1}, [raw], work)
    assert back.output_path == spec.output_path
    seen: list[Any] = []
    step = ExecutorStep("x", seen.append, None, resources=ResourceConfig(cpu=2))
    made = resolve_executor_step(step, {"a": 1}, "/out/x", deps=[raw])
    assert (made.name, made.output_path, made.deps, made.resources) == ("x", "/out/x", [raw], step.resources)
    assert made.fn is not None
    made.fn("/out/x")
    assert seen == [{"a": 1}]


def test_lambdas_have_the_names_of_their_functions() -> None:
    assert function_name(StepSpec("a", fn=lambda path: None).as_executor_step().fn).endswith("<lambda>")


def test_specs_that_are_stored_elsewhere_than_the_run_are_told_of(prefix: str) -> None:
    """`--prefix` comes too late for them: their functions have their paths already."""
    given = [StepSpec("b", output_path_prefix="/x", fn=work), StepSpec("c", override_output_path="/y", fn=work)]
    assert planned(*given, prefix=f"{prefix}/other").warnings == ()
    assert planned(StepSpec("a", fn=work), prefix=prefix).warnings == ()
    (warning,) = planned(StepSpec("a", fn=work), *given, prefix=f"{prefix}/other").warnings
    assert warning.startswith(f"1 StepSpecs, such as {prefix}/a_")
    assert "Set MARIN_PREFIX" in warning
