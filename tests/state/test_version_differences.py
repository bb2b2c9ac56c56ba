"""What tells versions of a step apart."""

from __future__ import annotations

from typing import Any

import pytest

from marin_rules import ExecutorStep, output_path_of, versioned
from marin_rules.driver.executor import Executor
from marin_rules.state.version_differences import differences


def model(rate: float = 0.1, vocabulary: int = 512, *, texts: str = "a", depth: int = 0) -> Any:
    """The version of a model whose tokenizer and texts are steps of their own."""
    documents = ExecutorStep("documents", None, {"input": versioned(texts)})
    for level in range(depth):
        documents = ExecutorStep(f"documents-{level}", None, {"input": output_path_of(documents)})
    tokenizer = ExecutorStep("tokenizer", None, {"input": output_path_of(documents), "size": versioned(vocabulary)})
    optimizer = {"rate": versioned(rate), "beta": versioned(0.9)}
    config = {"tokenizer": output_path_of(tokenizer), "optimizer": optimizer}
    executor = Executor("p", "p/experiments")
    executor.compute_version(step := ExecutorStep("model", None, config), is_pseudo_dep=False)
    return executor.versions[step]


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        ([model(), model()], [{}, {}]),
        ([model(0.1), model(0.2)], [{"optimizer.rate": "0.1"}, {"optimizer.rate": "0.2"}]),
        (
            [model(0.1, 512), model(0.1, 1024, texts="b"), model(0.2, 512)],
            [
                {"optimizer.rate": "0.1", "tokenizer: size": "512", "documents: input": '"a"'},
                {"optimizer.rate": "0.1", "tokenizer: size": "1024", "documents: input": '"b"'},
                {"optimizer.rate": "0.2", "tokenizer: size": "512", "documents: input": '"a"'},
            ],
        ),
        # A field that is not there is told by the other.
        ([{"config": {"a": 1}}, {"config": {"a": 1, "b": None}}], [{}, {"b": "null"}]),
        ([{"config": {"a": {}}}, {"config": {"a": {"b": []}}}], [{"a": "{}"}, {"a.b": "[]"}]),
        # What somebody else has written there.
        ([None, {"config": 3, "dependencies": ["x-123456"]}], [{}, {"config": "3", "x: version": "123456"}]),
    ],
)
def test_settings_that_are_not_the_same_in_all(versions: list[Any], found: list[dict[str, str]]) -> None:
    assert differences(versions) == found


def test_a_dependency_too_deep_to_be_written_out_is_told_by_its_hash() -> None:
    one, other = differences([model(depth=20, texts="a"), model(depth=20, texts="b")])
    assert list(one) == list(other)
    assert all(path.endswith(": version") for path in one)
    assert one != other
