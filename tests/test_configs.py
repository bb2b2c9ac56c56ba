"""Walking configs: the order and spelling of paths, and which parts of a config change when it is resolved."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from marin_rules import (
    THIS_OUTPUT_PATH,
    ExecutorStep,
    InputName,
    MirroredValue,
    OutputName,
    VersionedValue,
    collect_dependencies_and_version,
    ensure_versioned,
    get_executor_step,
    instantiate_config,
    mirrored,
    output_path_of,
    resolve_local_placeholders,
    this_output_path,
    unwrap_versioned_value,
    upstream_steps,
    versioned,
    walk_config,
)
from marin_rules.configs import InputNameEvent, VersionedEvent
from marin_rules.plan import make_plan


def run(config: Any) -> None:
    """A step's function; never called here."""


def step(name: str, config: Any = None) -> ExecutorStep[Any]:
    return ExecutorStep(name=name, fn=run, config=config)


A, B, C = (step(path[3]).with_output_path(path) for path in ("/p/a-1", "/p/b-2", "/q/c"))
PATHS = {A: "/p/a-1", B: "/p/b-2", C: "/q/c"}


@dataclass(frozen=True)
class Inner:
    z: Any = None
    y: Any = None


@dataclass(frozen=True)
class Outer:
    later: Any
    inner: Inner
    many: Any = ()
    output_path: str = THIS_OUTPUT_PATH


class Point(NamedTuple):
    x: Any
    y: Any


def walked(config: Any) -> list[tuple[str, Any]]:
    return [
        (event.prefix, event.value if isinstance(event, VersionedEvent) else event.input_name)
        for event in walk_config(config)
    ]


def instantiated(config: Any) -> Any:
    return instantiate_config(config, "/p/me-3", PATHS, "/p")


def planned(config: Any) -> Any:
    """The config with which a run would call the step; it is written to the path of `instantiated`."""
    plan = make_plan([ExecutorStep("me", run, config, override_output_path="/p/me-3")], prefix="/p")
    return plan.steps[-1].config


def budget(config: Any) -> float | None:
    return make_plan([step("me", config)], prefix="/p").steps[-1].mirror_budget_gb


# --- the walk


def test_the_order_is_that_of_fields_and_of_insertion() -> None:
    config = Outer(
        later={"second": versioned(1), "first": A, "third": [versioned(2), (B / "x", versioned(3))]},
        inner=Inner(z=versioned(4), y={"k": C.as_input_name().nonblocking()}),
        many=[[versioned(5)], InputName.hardcoded("raw")],
    )
    assert walked(config) == [
        ("later.second", 1),
        ("later.first", InputName(A, None)),
        ("later.third.[0]", 2),
        ("later.third.[1].[0]", InputName(B, "x")),
        ("later.third.[1].[1]", 3),
        ("inner.z", 4),
        ("inner.y.k", InputName(C, None, block_on_step=False)),
        ("many.[0].[0]", 5),
        ("many.[1]", InputName(None, "raw")),
    ]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (versioned(1), [("", 1)]),
        (A, [("", InputName(A, None))]),
        ([versioned(1)], [("[0]", 1)]),
        ({"a.b": versioned(1), "": versioned(2)}, [("a.b", 1), ("", 2)]),
        ({"": {"x": versioned(1)}}, [("x", 1)]),
        ({"a": {"": versioned(1)}}, [("a.", 1)]),
        ({versioned(7)}, [("[0]", 7)]),
        ({"s": frozenset([A])}, [("s.[0]", InputName(A, None))]),
        (Point(x=1, y=versioned(2)), [("[1]", 2)]),
        (mirrored(A / "x"), [("", InputName(A, "x"))]),
        ({"m": mirrored(versioned("raw"))}, [("m", "raw")]),
        (OrderedDict(b=versioned(1), a=versioned(2)), [("b", 1), ("a", 2)]),
        (versioned(Inner(z=1)), [("", Inner(z=1))]),
        (this_output_path("x"), []),
        ({"t": Inner, "o": object(), "b": b"x", "f": run, "e": True}, []),
        (None, []),
    ],
)
def test_paths_of_odd_places(config: Any, expected: list[tuple[str, Any]]) -> None:
    assert walked(config) == expected


def test_events_say_what_they_are() -> None:
    assert list(walk_config([A, versioned(1)])) == [
        InputNameEvent("[0]", InputName(A, None)),
        VersionedEvent("[1]", 1),
    ]


def test_a_step_is_not_entered() -> None:
    outer = step("outer", {"x": versioned(1), "a": A})
    assert walked([outer]) == [("[0]", InputName(outer, None))]


@pytest.mark.parametrize("key", [1, None, (1, 2)])
def test_keys_must_be_strings(key: Any) -> None:
    with pytest.raises(ValueError, match=r"must be strings: .* at outer\.inner"):
        list(walk_config({"outer": {"inner": {key: 1}}}))
    assert walked({"x": versioned({1: 2})}) == [("x", {1: 2})], "inside a versioned value they need not be"


def test_a_deep_config_is_walked_without_recursion() -> None:
    config: Any = versioned(1)
    for _ in range(3000):
        config = [config]
    assert walked(config) == [(".".join(["[0]"] * 3000), 1)]


def test_collect() -> None:
    found = collect_dependencies_and_version(
        {
            "a": A,
            "p": output_path_of(B, "x").nonblocking(),
            "again": A / "y",
            "n": versioned(3),
            "raw": InputName.hardcoded("gs://bucket/raw"),
            "back": output_path_of(B).nonblocking() / "z",
        }
    )
    assert found.dependencies == [A, A, B]
    assert found.pseudo_dependencies == [B]
    assert found.version == {
        "a": "DEP[0]",
        "p": "DEP[1]/x",
        "again": "DEP[2]/y",
        "n": 3,
        "raw": "gs://bucket/raw",
        "back": "DEP[3]/z",
    }
    assert list(found.version) == ["a", "p", "again", "n", "raw", "back"]


def test_upstream_steps_are_the_mentioned_ones_each_once() -> None:
    above = step("above", {"c": C})
    config = [B / "x", {"a": A, "n": output_path_of(above).nonblocking()}, B, InputName.hardcoded("raw")]
    assert upstream_steps(config) == [B, A, above]
    assert upstream_steps({"x": versioned(1), "o": THIS_OUTPUT_PATH}) == []
    assert upstream_steps(A) == [A]


# --- placeholders themselves


def test_input_names() -> None:
    assert A / "x" == A.cd("x") == output_path_of(A, "x") == InputName(A, "x")
    assert (A / "x").cd("y") == (A / "x") / "y" == InputName(A, "x/y")
    assert A.as_input_name() == output_path_of(A) == InputName(A, None)
    assert (A / "x").nonblocking() == InputName(A, "x", block_on_step=False)
    assert (A / "x").nonblocking() / "y" == InputName(A, "x/y", block_on_step=True)
    assert InputName.hardcoded("raw") == InputName(None, "raw")
    assert this_output_path() == THIS_OUTPUT_PATH == OutputName(None)
    assert this_output_path("x") == OutputName("x")


def test_steps_are_never_equal() -> None:
    assert step("a") != step("a")
    assert len({A, step("a")}) == 2
    moved = A.with_output_path("/elsewhere")
    assert (moved.name, moved.override_output_path) == ("a", "/elsewhere")
    assert A.override_output_path == "/p/a-1"


def test_get_executor_step() -> None:
    assert get_executor_step(A) is get_executor_step(A / "x") is A
    with pytest.raises(ValueError, match=r"'raw' is a hard-coded path: no step makes it"):
        get_executor_step(InputName.hardcoded("raw"))
    with pytest.raises(ValueError, match=r"expected a step or a path in one, got str: 'a'"):
        get_executor_step("a")  # type: ignore[arg-type]


def test_versioned_refuses_what_is_versioned_already() -> None:
    with pytest.raises(ValueError, match=r"cannot be nested.* versioned already: 1"):
        versioned(versioned(1))
    with pytest.raises(ValueError, match="a dependency is always versioned"):
        versioned(A / "x")
    once: Any = versioned(1)
    anew: Any = ensure_versioned(1)
    assert ensure_versioned(once) is once
    assert once == anew == VersionedValue(1)


def test_mirrored_is_not_nested() -> None:
    once: Any = mirrored("raw")
    assert once == MirroredValue("raw", 10)
    with pytest.raises(ValueError, match=r"cannot be nested.* mirrored already: 'raw'"):
        mirrored(mirrored("raw"))


# --- resolving


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (A, "/p/a-1"),
        (A / "x/y", "/p/a-1/x/y"),
        (output_path_of(C, ""), "/q/c"),
        (output_path_of(B).nonblocking(), "/p/b-2"),
        (InputName.hardcoded("raw"), "/p/raw"),
        (InputName.hardcoded("/raw"), "/raw"),
        (InputName.hardcoded("gs://bucket/raw"), "gs://bucket/raw"),
        (THIS_OUTPUT_PATH, "/p/me-3"),
        (this_output_path("x"), "/p/me-3/x"),
        (versioned(3), 3),
        (versioned(None), None),
        ([A, versioned(1), "x"], ["/p/a-1", 1, "x"]),
        ((A, versioned(1)), ("/p/a-1", 1)),
        ({"a": {"b": [A / "x"]}}, {"a": {"b": ["/p/a-1/x"]}}),
        (Point(A, versioned(1)), Point("/p/a-1", 1)),
        (Inner(z=A, y=Inner(y=versioned(1))), Inner(z="/p/a-1", y=Inner(y=1))),
        ({"t": Inner, "a": A}, {"t": Inner, "a": "/p/a-1"}),
        (mirrored("raw"), "mirror://raw"),
        (mirrored("mirror://raw"), "mirror://raw"),
        (mirrored(versioned("raw")), "mirror://raw"),
        (mirrored(A / "x"), "mirror:///p/a-1/x"),
        ([mirrored(InputName.hardcoded("gs://bucket/raw"))], ["mirror://gs://bucket/raw"]),
    ],
)
@pytest.mark.parametrize("resolve", [instantiated, planned])
def test_resolved(config: Any, expected: Any, resolve: Callable[[Any], Any]) -> None:
    resolved = resolve(config)
    assert resolved == expected
    assert type(resolved) is type(expected)


def test_sets_and_versioned_values_are_left_alone_as_in_marin_but_not_in_a_run() -> None:
    config: Any = {
        "set": {A},
        "frozen": frozenset([A / "x"]),
        "versioned": versioned([this_output_path("x"), {"n": versioned(1)}]),
        "mirrored": mirrored([A, {B}]),
    }
    assert instantiated(config) == {
        "set": {A},
        "frozen": frozenset([InputName(A, "x")]),
        "versioned": [OutputName("x"), {"n": VersionedValue(1)}],
        "mirrored": ["/p/a-1", {B}],
    }
    assert planned(config) == {
        "set": {"/p/a-1"},
        "frozen": frozenset(["/p/a-1/x"]),
        "versioned": ["/p/me-3/x", {"n": 1}],
        "mirrored": ["/p/a-1", {"/p/b-2"}],
    }
    assert type(planned(config)["set"]) is set
    assert type(planned(config)["frozen"]) is frozenset


def test_an_own_path_needs_an_output_path() -> None:
    with pytest.raises(ValueError, match=r"this_output_path\('x'\) cannot be resolved: .*output_path="):
        instantiate_config({"o": this_output_path("x")}, None, PATHS, "/p")
    config: Any = {"a": A}
    assert instantiate_config(config, None, PATHS, "/p") == {"a": "/p/a-1"}


def test_an_unchanged_part_is_the_same_object() -> None:
    inner = Inner(z=[1, 2], y={"k": (1, {2})})
    plain = Outer(later=[inner], inner=inner, many=(1, "x"), output_path="/here")
    assert instantiated(plain) is plain
    assert planned(plain) is plain
    assert resolve_local_placeholders(plain, "/p/me-3") is plain
    assert unwrap_versioned_value(plain) is plain

    untouched, numbers = {"k": [1]}, [1, 2, 3]
    config = Outer(later=untouched, inner=Inner(z=A, y=numbers), many=[numbers, untouched])
    resolved = instantiated(config)
    assert resolved == Outer(untouched, Inner("/p/a-1", numbers), [numbers, untouched], "/p/me-3")
    assert resolved.later is untouched
    assert resolved.inner.y is numbers
    assert resolved.many is config.many
    assert config.inner.z is A, "the config itself stays as it was"


@dataclass(frozen=True)
class Derived:
    """A config with a field that nobody can set."""

    source: Any
    size: int = field(init=False, default=3)
    keep: Any = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", ["derived"])


def test_fields_without_init_stay() -> None:
    resolved = instantiated(Derived(source=A))
    assert (resolved.source, resolved.size, resolved.keep) == ("/p/a-1", 3, ["derived"])
    unchanged = Derived(source="x")
    assert instantiated(unchanged) is unchanged


def test_a_dataclass_type_is_a_value_like_any_other() -> None:
    config = {"type": Outer, "types": [Inner, Point], "a": A}
    assert walked(config) == [("a", InputName(A, None))]
    resolved = planned(config)
    assert resolved == {"type": Outer, "types": [Inner, Point], "a": "/p/a-1"}
    assert unwrap_versioned_value({"type": Outer, "n": versioned(1)}) == {"type": Outer, "n": 1}


def test_named_tuples_keep_their_type_and_names() -> None:
    pair = namedtuple("pair", ["left", "right"])
    resolved = instantiated([pair(left=A, right=[versioned(2)])])
    assert type(resolved[0]) is pair
    assert (resolved[0].left, resolved[0].right) == ("/p/a-1", [2])


# --- without a plan


def test_resolve_local_placeholders() -> None:
    config = Outer(
        later=[versioned((this_output_path("in"), 1)), A / "x"],
        inner=Inner(z=mirrored(versioned("raw"), budget_gb=3), y=InputName.hardcoded("raw")),
        many=(versioned(1), THIS_OUTPUT_PATH),
    )
    assert resolve_local_placeholders(config, "/p/me-3") == Outer(
        later=[("/p/me-3/in", 1), A / "x"],
        inner=Inner(z=MirroredValue("raw", 3), y=InputName.hardcoded("raw")),
        many=(1, "/p/me-3"),
        output_path="/p/me-3",
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (versioned(1), 1),
        (5, 5),
        ((1, versioned(2), [versioned(3)]), (1, 2, [3])),
        (versioned((versioned("a"), {"k": versioned(2)})), ("a", {"k": 2})),
        (Point(versioned(1), (versioned(2),)), Point(1, (2,))),
        (Inner(z=versioned(1), y=(versioned(2), 3)), Inner(z=1, y=(2, 3))),
        (mirrored(versioned("raw")), "raw"),
        ({"m": [mirrored("raw")]}, {"m": ["raw"]}),
    ],
)
def test_unwrap(value: Any, expected: Any) -> None:
    unwrapped = unwrap_versioned_value(value)
    assert unwrapped == expected
    assert type(unwrapped) is type(expected)


@pytest.mark.parametrize(
    "value",
    [A, A / "x", InputName.hardcoded("raw"), THIS_OUTPUT_PATH, (1, (THIS_OUTPUT_PATH,)), {"m": mirrored(A)}],
)
def test_unwrap_refuses_what_only_a_plan_knows(value: Any) -> None:
    with pytest.raises(ValueError, match="known only once the step is planned"):
        unwrap_versioned_value(value)


# --- mirrored


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"a": "raw"}, None),
        (mirrored("raw"), 10),
        ({"a": mirrored("x", budget_gb=1), "b": [mirrored("y", budget_gb=2.5)], "c": Inner()}, 2.5),
        ({"a": [mirrored("y", budget_gb=2.5)], "b": mirrored("x", budget_gb=1)}, 2.5),
        ({"s": {mirrored("x", budget_gb=3)}}, 3),
        ({"n": mirrored("x", budget_gb=0)}, 0),
        # A run resolves it to a `mirror://` path, so it must be allowed to copy.
        ({"v": versioned([mirrored("x", budget_gb=4)])}, 4),
    ],
)
def test_the_largest_budget_counts(config: Any, expected: float | None) -> None:
    assert budget(config) == expected
