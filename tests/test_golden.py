"""The contract on identity: a thousand steps, and devices, whose versions, paths and configs Marin itself has computed.

tests/golden/README.md says where they come from; tests/support/golden.py builds their steps.
"""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

import marin_rules
from support.golden import NoJaxError, observe

GOLDEN = Path(__file__).with_name("golden")
DEVICES = json.loads((GOLDEN / "devices.json").read_text())
NAMES = {name: getattr(marin_rules, name) for name in marin_rules.__all__}
GRAPHS = json.loads((GOLDEN / "graphs.json").read_text())["graphs"]


def named(graph: dict[str, Any]) -> Any:
    return pytest.param(graph, id=f"{graph['id']}-{'-'.join(graph['tags'])}")


@pytest.mark.parametrize("graph", [named(graph) for graph in GRAPHS])
def test_marin_computes_the_same(graph: dict[str, Any]) -> None:
    try:
        if "expect_error" in graph:
            with pytest.raises(getattr(builtins, graph["expect_error"])):
                observe(graph)
        else:
            assert observe(graph) == graph["expect"]
    except NoJaxError:
        pytest.skip("jax is not installed, and this graph has its types in a config")


def test_no_vector_is_lost() -> None:
    """Fewer would mean that the file, or the way it is read, has lost some of them."""
    steps, specs = ([graph for graph in GRAPHS if graph["kind"] == kind] for kind in ("executor", "stepspec"))
    assert (len(steps), len(specs), len(DEVICES)) == (140, 10, 159)
    assert sum(len(graph["steps"]) for graph in steps) == 979
    assert sum(len(graph["specs"]) for graph in specs) == 34


def test_devices_and_what_they_do_to_a_path_are_marins() -> None:
    """A ResourceConfig only enters a version if somebody versions it, and then with all of its fields."""
    differing = []
    for case in DEVICES:
        if "value" in case:
            found, expected = eval(case["value"], NAMES), case["equals"]
        else:
            config = eval(case["config"], NAMES)
            found, expected = marin_rules.compute_output_path("res/x", config, prefix="/p"), case["path"]
        if found != expected:
            differing.append((case, found))
    assert differing == []
