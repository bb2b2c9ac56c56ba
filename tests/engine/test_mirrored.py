"""A step with `mirrored()` data, run by real Snakemake: copied once from the other region, or refused for its cost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.emulators.gcs.emulator import GcsEmulator
from support.lab import Lab

CLUSTER = """
data:
  scheme: gs
  region_buckets:
    us-central1: near
    europe-west4: far
"""

EXPERIMENT = """
    from dataclasses import dataclass
    import fsspec
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, mirrored, versioned

    @dataclass(frozen=True)
    class Config:
        documents: str
        attempt: int
        output_path: str = THIS_OUTPUT_PATH

    def count(config):
        with fsspec.open(config.documents, "rb") as file:
            return len(file.read())

    def step(number, budget):
        documents = mirrored(versioned("documents/book.txt"), budget_gb=budget)
        return ExecutorStep(f"count-{number}", count, Config(documents, versioned(number)))

    if __name__ == "__main__":
        executor_main(steps=[step(1, %(budget)s), step(2, %(budget)s)])
"""


@pytest.fixture
def run(gcs: GcsEmulator, tmp_path: Path, lab: Lab) -> Callable[..., Any]:
    """`run(budget=, **variables)`: two steps near the data of Europe, in a cluster of two regions."""
    gcs.create_bucket("near", "us-central1")
    gcs.create_bucket("far", "europe-west4")
    gcs.put("far", "documents/book.txt", b"x" * 2_000_000)
    (tmp_path / "config" / "clusters").mkdir(parents=True)
    (tmp_path / "config" / "clusters" / "two.yaml").write_text(CLUSTER)

    def start(*arguments: str, budget: float, **variables: str) -> Any:
        file = lab.experiment(EXPERIMENT % {"budget": budget})
        env = {**gcs.environment, "MARIN_CLUSTER": "two", "MARIN_PREFIX": "gs://near", **variables}
        return lab.snakemake("-j", "1", *arguments, experiment=file, prefix=None, env=env)

    return start


def test_it_is_copied_once_and_then_never_again(gcs: GcsEmulator, run: Callable[..., Any]) -> None:
    result = run(budget=1)
    assert result.code == 0, result.output
    assert gcs.get("near", "documents/book.txt") == b"x" * 2_000_000
    assert len(gcs.history("near", "documents/book.txt")) == 1
    for number in (1, 2):
        (artifact,) = [name for name in gcs.names("near", f"count-{number}-") if name.endswith("/.artifact.json")]
        assert gcs.get("near", artifact) == b"2000000\n"

    gcs.forget_calls()
    again = run("--forceall", budget=1)
    assert again.code == 0, again.output
    assert again.started == ["count-1", "count-2"]
    assert not [call for call in gcs.calls() if call.bucket == "far"]


def test_what_costs_more_than_was_allowed_is_refused_before_the_first_byte(
    gcs: GcsEmulator, run: Callable[..., Any]
) -> None:
    result = run(budget=0.001)
    assert result.code != 0
    (line, *_) = [line for line in result.output.splitlines() if "cannot move gs://far/documents/book.txt" in line]
    assert "from europe-west4 to us-central1" in line
    assert "$" in line
    assert gcs.get("near", "documents/book.txt") is None
    assert not [call for call in gcs.calls() if call.bucket == "far" and (call.download or "rewriteTo" in call.path)]

    allowed = run(budget=0.001, MARIN_MIRROR_BUDGET_GB="1")
    assert allowed.code == 0, allowed.output


def test_data_of_two_regions_in_a_step_beside_the_driver_are_warned_of(
    gcs: GcsEmulator, run: Callable[..., Any], lab: Lab
) -> None:
    file = lab.experiment(
        EXPERIMENT.replace("mirrored(versioned(", "versioned(").replace(
            '"documents/book.txt"), budget_gb=budget)', '"gs://far/documents/book.txt")'
        )
        % {"budget": 1},
        "direct.py",
    )
    env = {**gcs.environment, "MARIN_CLUSTER": "two", "MARIN_PREFIX": "gs://near"}
    result = lab.snakemake("-n", experiment=file, prefix=None, env=env)
    assert result.code == 0, result.output
    assert "step 'count-1' is cross-region" in result.output
    assert "config.documents = gs://far/documents/book.txt -> europe-west4" in result.output
    assert "Traceback" not in result.output
