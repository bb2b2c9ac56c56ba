"""Identity, against literals and against a second implementation that is too simple to be wrong.

The second implementation never sees a config: it reads the description from which the config was built, and writes
every version out in full, as Marin's does.
"""

from __future__ import annotations

import hashlib
import json
import math
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from functools import cache
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marin_rules import (
    THIS_OUTPUT_PATH,
    Executor,
    ExecutorStep,
    InputName,
    PlanError,
    ResourceConfig,
    compute_output_path,
    mirrored,
    output_path_of,
    this_output_path,
    versioned,
)
from marin_rules.plan import make_plan

PREFIX = "/prefix"
MEGABYTE = 1_000_000


def run(config: Any) -> None:
    """A step's function; never called here."""


def step(name: str, config: Any, **details: Any) -> ExecutorStep[Any]:
    return ExecutorStep(name=name, fn=run, config=config, **details)


def identified(*roots: ExecutorStep[Any], prefix: str = PREFIX) -> Executor:
    executor = Executor(prefix, f"{prefix}/experiments")
    for root in roots:
        executor.compute_version(root, is_pseudo_dep=False)
    return executor


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


# --- literals


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class GenerateDataConfig:
    n: int
    output_path: str = THIS_OUTPUT_PATH


@dataclass(frozen=True)
class ComputeStatsConfig:
    input_path: str | InputName
    output_path: str = THIS_OUTPUT_PATH


def test_hello_world() -> None:
    data = step("hello_world/data", GenerateDataConfig(n=100))
    stats = step("hello_world/stats", ComputeStatsConfig(input_path=output_path_of(data)))
    executor = identified(stats)
    assert executor.output_paths[data] == "/prefix/hello_world/data-d50b06"
    assert executor.output_paths[stats] == "/prefix/hello_world/stats-b5daf3"


A = step("a", {})
A_TEXT = '{"config": {}, "dependencies": [], "name": "a"}'

LITERALS = [
    pytest.param(A, A_TEXT, "d85366", id="nothing"),
    pytest.param(
        step("train", {"n": versioned(3), "threads": 8, "lr": versioned(0.1)}),
        '{"config": {"lr": 0.1, "n": 3}, "dependencies": [], "name": "train"}',
        "77c7a7",
        id="only versioned values enter, sorted in the text",
    ),
    pytest.param(
        step("s", versioned(1082)),
        '{"config": {"": 1082}, "dependencies": [], "name": "s"}',
        "2bd337",
        id="a config that is a value has an empty path",
    ),
    pytest.param(
        step("hé", {"path": InputName.hardcoded("raw/ü.txt")}),
        '{"config": {"path": "raw/\\u00fc.txt"}, "dependencies": [], "name": "h\\u00e9"}',
        "694acc",
        id="a hard-coded path enters, ASCII only",
    ),
    pytest.param(
        step("b", {"a": A / "x/y", "b": A, "c": [output_path_of(A).nonblocking(), {"k": mirrored(A / "z")}]}),
        '{"config": {"a": "DEP[0]/x/y", "b": "DEP[1]", "c.[0]": "DEP[2]", "c.[1].k": "DEP[3]/z"}, '
        f'"dependencies": [{A_TEXT}, {A_TEXT}, {A_TEXT}], "name": "b", "pseudo_dependencies": [{A_TEXT}]}}',
        "136f9e",
        id="one count over blocking and other references, repeats kept",
    ),
    pytest.param(
        step(
            "types",
            {
                "t": versioned(timedelta(days=1, seconds=2, microseconds=3)),
                "p": versioned(PurePosixPath("x/y")),
                "e": versioned(Colour.RED),
                "f": versioned(math.nan),
                "i": versioned(-math.inf),
                "d": versioned({10: 2, 9: 1}),
                "u": versioned((1, [2, 3])),
            },
        ),
        '{"config": {"d": {"9": 1, "10": 2}, "e": "red", "f": NaN, "i": -Infinity, "p": "x/y", '
        '"t": {"days": 1, "microseconds": 3, "seconds": 2}, "u": [1, [2, 3]]}, '
        '"dependencies": [], "name": "types"}',
        "5cabe0",
        id="types",
    ),
]


@pytest.mark.parametrize(("root", "text", "digits"), LITERALS)
def test_literal(root: ExecutorStep[Any], text: str, digits: str) -> None:
    assert md5(text)[:6] == digits, "the literal itself"
    executor = identified(root)
    assert executor.version_strs[root] == text
    assert executor.hashed_versions[root] == digits
    assert executor.output_paths[root] == f"/prefix/{root.name}-{digits}"
    assert compute_output_path(root.name, root.config, prefix=PREFIX) == f"/prefix/{root.name}-{digits}"
    assert json.dumps(executor.versions[root], sort_keys=True, default=_as_literal) == text


def _as_literal(value: Any) -> Any:
    if isinstance(value, timedelta):
        return {"days": value.days, "seconds": value.seconds, "microseconds": value.microseconds}
    return value.value if isinstance(value, Enum) else str(value)


def test_a_dependency_is_written_out_up_to_depth_four() -> None:
    steps = [step("chain/0", {})]
    for number in range(1, 8):
        steps.append(step(f"chain/{number}", {"before": steps[-1]}))
    executor = identified(steps[-1])
    assert [executor.hashed_versions[item] for item in steps[4:]] == ["3ae415", "dece64", "078934", "94c815"]
    assert executor.versions[steps[5]]["dependencies"] == [executor.versions[steps[4]]]
    assert executor.versions[steps[6]]["dependencies"] == ["chain/5-dece64"]
    assert executor.versions[steps[7]]["dependencies"] == ["chain/6-078934"]


def test_nonblocking_then_cd_blocks_again() -> None:
    executor = identified(step("b", {"x": output_path_of(A).nonblocking().cd("y")}))
    (version,) = [json.loads(text) for item, text in executor.version_strs.items() if item.name == "b"]
    assert version["dependencies"] == [json.loads(A_TEXT)]
    assert "pseudo_dependencies" not in version


def test_of_two_values_at_one_path_the_last_wins() -> None:
    one = step("b", {"a.b": versioned(1), "a": {"b": versioned(2)}})
    other = step("b", {"a": {"b": versioned(2)}, "a.b": versioned(1)})
    executor = identified(one, other)
    assert executor.versions[one]["config"] == {"a.b": 2}
    assert executor.versions[other]["config"] == {"a.b": 1}


# --- what never enters


def other_function(config: Any) -> None:
    """Another function."""


@pytest.mark.parametrize(
    "change",
    [
        {"description": "Another description."},
        {"resources": ResourceConfig.with_tpu("v4-8")},
        {"fn": other_function},
        {"fn": None},
        {"override_output_path": "/elsewhere/b"},
        {"report": ["*.png"]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_only_name_and_config_enter(change: dict[str, Any]) -> None:
    config = {"x": versioned(1), "a": A / "file"}
    text = f'{{"config": {{"a": "DEP[0]/file", "x": 1}}, "dependencies": [{A_TEXT}], "name": "b"}}'
    plain = step("b", config)
    changed = replace(plain, **change)
    user, user_of_changed = step("c", [plain]), step("c", [changed])
    executor = identified(user, user_of_changed)
    assert executor.version_strs[changed] == executor.version_strs[plain] == text
    assert executor.version_strs[user] == executor.version_strs[user_of_changed]


def test_the_prefix_and_plain_values_and_the_budget_never_enter() -> None:
    one = step("b", {"x": 1, "m": mirrored("raw", budget_gb=1), "o": this_output_path("x")})
    other = step("b", {"x": 2, "m": mirrored("raw", budget_gb=2), "o": this_output_path("y")})
    digits = {
        identified(item, prefix=prefix).hashed_versions[item]
        for item in (one, other)
        for prefix in ("/p", "gs://bucket", "relative", "")
    }
    assert digits == {md5('{"config": {}, "dependencies": [], "name": "b"}')[:6]}


# --- any graph


@dataclass(frozen=True)
class Reference:
    """A mention of an earlier step: how many steps back, what below it, and in which words."""

    back: int
    name: str | None
    how: str


@dataclass(frozen=True)
class Leaf:
    """Something else than a reference: plain, versioned, hardcoded or this."""

    kind: str
    value: Any


@dataclass(frozen=True)
class Tree:
    """A container: list, tuple, dict, dataclass or mirrored."""

    kind: str
    items: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Pair:
    """A config for random trees of two items."""

    first: Any
    second: Any


def build(node: Any, earlier: list[ExecutorStep[Any]]) -> Any:
    """The config that a description describes."""
    if isinstance(node, Reference):
        target = earlier[-node.back]
        if node.how == "step":
            return target
        reference = output_path_of(target, node.name)
        return reference.nonblocking() if node.how == "nonblocking" else reference
    if isinstance(node, Leaf):
        wrappers: dict[str, Callable[[Any], Any]] = {
            "versioned": versioned,
            "hardcoded": InputName.hardcoded,
            "this": this_output_path,
            "plain": lambda value: value,
        }
        return wrappers[node.kind](node.value)
    values = [build(item, earlier) for _, item in node.items]
    if node.kind == "mirrored":
        return mirrored(values[0], budget_gb=7)
    if node.kind == "dataclass":
        return Pair(*values)
    if node.kind == "dict":
        return {key: value for (key, _), value in zip(node.items, values, strict=True)}
    return values if node.kind == "list" else tuple(values)


def events(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The leaves of a description that enter the version, with their paths."""
    if isinstance(node, Tree):
        for number, (key, item) in enumerate(node.items):
            part = {"dict": key, "dataclass": ("first", "second")[number % 2]}.get(node.kind, f"[{number}]")
            below = path if node.kind == "mirrored" else f"{path}.{part}" if path else part
            yield from events(item, below)
    elif isinstance(node, Reference) or node.kind in ("versioned", "hardcoded"):
        yield path, node


class Oracle:
    """Versions of described steps, written out in full."""

    def __init__(self, graph: list[tuple[str, Any]]) -> None:
        self.versions: list[dict[str, Any]] = []
        self.depths: list[int] = []
        self.references: list[list[tuple[int, bool]]] = []
        """For each step what it mentions, and whether it waits for that."""
        self.names = [name for name, _ in graph]
        for number, (name, node) in enumerate(graph):
            found = list(events(node, ""))
            mentioned = [item for _, item in found if isinstance(item, Reference)]
            self.references.append([(number - item.back, item.how != "nonblocking") for item in mentioned])
            blocking = [i for i, is_blocking in self.references[number] if is_blocking]
            pseudo = [i for i, is_blocking in self.references[number] if not is_blocking]
            version = {
                "name": name,
                "config": config_version(found),
                "dependencies": [self.entry(i) for i in blocking],
            }
            if pseudo:
                version["pseudo_dependencies"] = [self.entry(i) for i in pseudo]
            self.versions.append(version)
            self.depths.append(1 + max((self.depths[i] for i in blocking), default=-1))

    def text(self, number: int) -> str:
        return json.dumps(self.versions[number], sort_keys=True)

    def name_and_hash(self, number: int) -> str:
        return f"{self.names[number]}-{md5(self.text(number))[:6]}"

    def entry(self, number: int) -> Any:
        return self.versions[number] if self.depths[number] <= 4 else self.name_and_hash(number)


def config_version(found: list[tuple[str, Any]]) -> dict[str, Any]:
    config = {}
    mentioned = 0
    for path, node in found:
        if isinstance(node, Leaf):
            config[path] = node.value
        else:
            # A step that is mentioned by itself has no name below it.
            below = f"/{node.name}" if node.name and node.how != "step" else ""
            config[path] = f"DEP[{mentioned}]{below}"
            mentioned += 1
    return config


KEYS = st.sampled_from(["a", "b", "a.b", "x y", "é", "[0]"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(["data", "data/raw", "tokenized/ü", 'odd "name"', "a//b"])


@cache
def nodes(number: int) -> st.SearchStrategy[Any]:
    """Descriptions of the config of a step that has `number` steps before it."""
    leaves: st.SearchStrategy[Any] = st.one_of(
        st.builds(Leaf, st.just("plain"), VALUES),
        st.builds(Leaf, st.just("versioned"), VALUES),
        st.builds(Leaf, st.just("hardcoded"), st.sampled_from(["raw", "gs://bucket/raw", "/raw"])),
        st.builds(Leaf, st.just("this"), st.sampled_from(["x", None])),
    )
    if number:
        back = st.integers(1, number) | st.just(1)
        how = st.sampled_from(["step", "input", "input", "nonblocking"])
        leaves |= st.builds(Reference, back, st.sampled_from([None, "", "x", "x/y"]), how)
    paths = leaves.map(lambda leaf: Tree("mirrored", (("", leaf),)))
    return st.recursive(leaves | paths, trees, max_leaves=4)


def trees(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    unnamed = st.lists(inner.map(lambda item: ("", item)), max_size=3).map(tuple)
    named = st.lists(st.tuples(KEYS, inner), max_size=3, unique_by=lambda item: item[0]).map(tuple)
    pairs = st.tuples(inner, inner).map(lambda two: (("", two[0]), ("", two[1])))
    return st.one_of(
        st.builds(Tree, st.sampled_from(["list", "tuple"]), unnamed),
        st.builds(Tree, st.just("dict"), named),
        st.builds(Tree, st.just("dataclass"), pairs),
    )


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[str, Any]]:
    size = draw(st.integers(1, 8))
    return [(draw(NAMES), draw(nodes(number))) for number in range(size)]


def mentions(*references: Reference) -> Tree:
    return Tree("list", tuple(("", reference) for reference in references))


BACK = Reference(1, None, "step")
PSEUDO = Reference(1, "x", "nonblocking")


@settings(max_examples=150, deadline=None)
@given(graphs())
@example([("deep", mentions())] + 8 * [("deep", mentions(BACK, BACK))])
@example([("pseudo", mentions())] + 8 * [("pseudo", mentions(PSEUDO, PSEUDO))])
@example([("mixed", mentions())] + 4 * [("mixed", mentions(PSEUDO)), ("mixed", mentions(BACK, PSEUDO))])
def test_any_graph_has_the_identity_of_the_simple_implementation(graph: list[tuple[str, Any]]) -> None:
    oracle = Oracle(graph)
    steps: list[ExecutorStep[Any]] = []
    for name, node in graph:
        steps.append(step(name, build(node, steps)))

    executor = identified(*steps)

    for number, item in enumerate(steps):
        assert executor.version_strs[item] == oracle.text(number)
        assert executor.output_paths[item] == f"/prefix/{oracle.name_and_hash(number)}"
        assert executor.versions[item] == oracle.versions[number]
        blocking = [steps[i] for i, is_blocking in oracle.references[number] if is_blocking]
        assert executor.dependencies[item] == [executor.canonicalize(target) for target in blocking]
    # Steps of one version are one step, the first, and stand after what they depend on.
    assert len(executor.steps) == len({oracle.text(number) for number in range(len(steps))})
    position = {item: index for index, item in enumerate(executor.steps)}
    for item in executor.steps:
        assert all(position[target] < position[item] for target in executor.dependencies[item])


# --- large graphs


def full_layers(layers: int, width: int) -> list[ExecutorStep[Any]]:
    """Each step of a layer refers to all of the layer before; returns the last layer."""
    last: list[ExecutorStep[Any]] = []
    for layer in range(layers):
        last = [step(f"layer{layer}/{i}", {"i": versioned(i), "inputs": list(last)}) for i in range(width)]
    return last


def layer_pieces(layer: int, i: int, width: int) -> Iterator[str]:
    """The text of one step of `full_layers`, a piece at a time: in one it would be 20 MB."""
    keys = {f"inputs.[{j}]": f"DEP[{j}]" for j in range(width if layer else 0)}
    yield f'{{"config": {json.dumps({"i": i} | keys, sort_keys=True)}, "dependencies": ['
    for j in range(width if layer else 0):
        yield ", " if j else ""
        yield from layer_pieces(layer - 1, j, width)
    yield f'], "name": "layer{layer}/{i}"}}'


def test_full_layers_take_little_memory() -> None:
    roots = full_layers(layers=6, width=12)
    tracemalloc.start()
    try:
        executor = identified(*roots)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 * MEGABYTE
    assert len(executor.steps) == 72

    expected, size = hashlib.md5(), 0
    for piece in layer_pieces(layer=5, i=11, width=12):
        expected.update(piece.encode())
        size += len(piece)
    assert size > 20 * MEGABYTE
    assert expected.hexdigest()[:6] == "f2f45b"
    assert executor.output_paths[roots[11]] == "/prefix/layer5/11-f2f45b"


def chain(length: int) -> list[ExecutorStep[Any]]:
    steps = [step("chain/0", {})]
    for number in range(1, length):
        steps.append(step(f"chain/{number}", {"before": steps[-1]}))
    return steps


def test_a_chain_of_five_thousand() -> None:
    steps = chain(5000)
    text = '{"config": {}, "dependencies": [], "name": "chain/0"}'
    for number in range(1, 5000):
        before = text if number - 1 <= 4 else f'"chain/{number - 1}-{md5(text)[:6]}"'
        text = f'{{"config": {{"before": "DEP[0]"}}, "dependencies": [{before}], "name": "chain/{number}"}}'
    assert md5(text)[:6] == "a85515"

    executor = identified(steps[-1])
    assert executor.output_paths[steps[-1]] == "/prefix/chain/4999-a85515"
    assert len(executor.steps) == 5000
    assert compute_output_path("chain/4999", steps[-1].config, prefix=PREFIX) == "/prefix/chain/4999-a85515"
    plan = make_plan([steps[-1]], prefix=PREFIX)
    assert [planned.name for planned in plan.steps] == [item.name for item in steps]
    assert plan.steps[-1].output_path == "/prefix/chain/4999-a85515"


def ladder(levels: int) -> ExecutorStep[Any]:
    """Two non-blocking references to the step before: the version doubles at each level."""
    last = step("ladder/0", {})
    for level in range(1, levels):
        below = output_path_of(last).nonblocking()
        last = step(f"ladder/{level}", {"a": below, "b": below})
    return last


def test_a_low_ladder_is_written_out() -> None:
    def text(level: int) -> str:
        if level == 0:
            return '{"config": {}, "dependencies": [], "name": "ladder/0"}'
        below = text(level - 1)
        return (
            f'{{"config": {{"a": "DEP[0]", "b": "DEP[1]"}}, "dependencies": [], "name": "ladder/{level}", '
            f'"pseudo_dependencies": [{below}, {below}]}}'
        )

    assert md5(text(11))[:6] == "14bcc8"
    assert compute_output_path("ladder/11", ladder(12).config, prefix=PREFIX) == "/prefix/ladder/11-14bcc8"


def test_a_high_ladder_is_refused() -> None:
    top = ladder(40)
    tracemalloc.start()
    try:
        with pytest.raises(PlanError, match=r"step 'ladder/\d+': .*non-blocking.*InputName\.hardcoded"):
            make_plan([top], prefix=PREFIX)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200 * MEGABYTE


def test_a_long_row_of_nonblocking_references() -> None:
    last = step("row/0", {})
    text = '{"config": {}, "dependencies": [], "name": "row/0"}'
    for number in range(1, 1500):
        last = step(f"row/{number}", {"before": output_path_of(last).nonblocking()})
        text = (
            f'{{"config": {{"before": "DEP[0]"}}, "dependencies": [], "name": "row/{number}", '
            f'"pseudo_dependencies": [{text}]}}'
        )
    assert md5(text)[:6] == "5e19f4"
    executor = identified(last)
    assert executor.output_paths[last] == "/prefix/row/1499-5e19f4"
    assert executor.version_strs[last] == text
