"""The contract on identity: a thousand steps whose versions, paths and configs Marin itself has computed.

tests/golden/README.md says where they come from; tests/support/golden.py builds their steps.
"""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from support.golden import NoJaxError, observe

GRAPHS = json.loads(Path(__file__).with_name("golden").joinpath("graphs.json").read_text())["graphs"]


def named(graph: dict[str, Any]) -> Any:
    return pytest.param(graph, id=f"{graph['id']}-{'-'.join(graph['tags'])}")


@pytest.mark.parametrize("graph", [named(graph) for graph in GRAPHS])
def test_marin_computes_the_same(graph: dict[str, Any]) -> None:
    if graph["kind"] == "stepspec":
        pytest.skip("StepSpec is not part of this package yet")
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
    asserted = [graph for graph in GRAPHS if graph["kind"] == "executor"]
    assert len(asserted) == 140
    assert sum(len(graph["steps"]) for graph in asserted) == 979
