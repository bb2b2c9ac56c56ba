"""A run goes on only with what it began with; a finished one that is run again begins anew."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from marin_rules.pipeline.training.errors import TrainingError
from marin_rules.pipeline.training.origin import begin_or_go_on, content_of

ORIGIN = {"hyperparameters": {"learning_rate": 0.1, "num_train_steps": 80}, "model": {"num_layers": 2}, "data": "abc"}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """What a training has left that was stopped half-way."""
    begin_or_go_on(str(tmp_path), ORIGIN)
    for name in ("checkpoints/step-20/array", "hf/step-20/config.json", "metrics.jsonl", ".executor_status", "mine"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


def test_the_same_goes_on(output: Path) -> None:
    begin_or_go_on(str(output), ORIGIN)
    assert (output / "checkpoints" / "step-20" / "array").exists()
    assert (output / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"data": "other"}, "data"),
        ({"hyperparameters": {"learning_rate": 0.2, "num_train_steps": 80}}, "learning_rate"),
        ({"model": {"num_layers": 3}}, "num_layers"),
    ],
)
def test_something_else_is_refused_and_nothing_is_lost(output: Path, changed: dict[str, object], said: str) -> None:
    before = sorted(output.rglob("*"))
    with pytest.raises(TrainingError, match=rf"began with something else: {said} changed") as refused:
        begin_or_go_on(str(output), {**ORIGIN, **changed})
    assert "marin-rules delete" in str(refused.value)
    assert sorted(output.rglob("*")) == before
    begin_or_go_on(str(output), ORIGIN)


def test_what_an_older_version_did_not_write_down_is_no_difference(output: Path) -> None:
    more = {**ORIGIN, "hyperparameters": {**ORIGIN["hyperparameters"], "new": 1}, "first_weights": {}}  # type: ignore[dict-item]
    begin_or_go_on(str(output), more)
    assert (output / "checkpoints" / "step-20" / "array").exists()


def test_a_training_without_a_note_goes_on(output: Path) -> None:
    (output / "checkpoints" / "origin.json").unlink()
    begin_or_go_on(str(output), ORIGIN)
    assert (output / "checkpoints" / "step-20" / "array").exists()


def test_a_finished_one_begins_anew_once(output: Path) -> None:
    again(output, "x", after_done="x")
    begin_or_go_on(str(output), ORIGIN)
    assert not (output / "checkpoints" / "step-20").exists()
    assert not (output / "metrics.jsonl").exists()
    (output / "checkpoints" / "step-30").mkdir()
    (output / "checkpoints" / "step-30" / "array").write_text("x")
    begin_or_go_on(str(output), ORIGIN)
    assert (output / "checkpoints" / "step-30").exists(), "an attempt after a kill goes on"


def test_of_folders_that_were_moved_and_linked_only_the_links_go(output: Path, tmp_path_factory: Any) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("checkpoints", "hf"):
        (output / name).rename(elsewhere / name)
        (output / name).symlink_to(elsewhere / name)
    again(output, "x", after_done="x")
    begin_or_go_on(str(output), ORIGIN)
    assert not (output / "checkpoints").is_symlink()
    assert not (output / "hf").exists()
    assert (elsewhere / "checkpoints" / "step-20" / "array").exists()


def test_a_half_finished_one_goes_on_even_if_it_is_forced(output: Path) -> None:
    again(output, "x", after_done=None)
    begin_or_go_on(str(output), ORIGIN)
    assert (output / "checkpoints" / "step-20" / "array").exists()


def test_one_that_was_killed_just_before_it_was_done_goes_on(output: Path) -> None:
    (output / ".artifact.json").write_text("{}")
    begin_or_go_on(str(output), ORIGIN)
    assert (output / "checkpoints" / "step-20" / "array").exists()


def test_a_finished_one_that_is_forced_twice_begins_anew_once(output: Path) -> None:
    again(output, "y", after_done="x")  # The attempt of x was killed before it came here.
    begin_or_go_on(str(output), ORIGIN)
    assert not (output / "checkpoints" / "step-20").exists()
    (output / "checkpoints" / "step-30").mkdir()
    (output / "checkpoints" / "step-30" / "array").write_text("x")
    again(output, "z", after_done="x")
    begin_or_go_on(str(output), ORIGIN)
    assert (output / "checkpoints" / "step-30").exists()


def again(output: Path, id: str, *, after_done: str | None) -> None:
    """What a worker leaves that begins a step anew."""
    (output / ".executor_again").write_text(json.dumps({"id": id, "after_done": after_done}))


def test_a_model_is_not_another_one_for_its_readme(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    before = content_of(str(tmp_path), whole=False)
    (tmp_path / "README.md").write_text("A model.")
    assert content_of(str(tmp_path), whole=False) == before
    (tmp_path / "config.json").write_text('{"rope_theta": 1}')
    assert content_of(str(tmp_path), whole=False) != before


def test_weights_are_known_by_size_and_end(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(bytes(3 << 20))
    before = content_of(str(tmp_path), whole=False)
    os.utime(weights, (0, 0))
    assert content_of(str(tmp_path), whole=False) == before
    weights.write_bytes(bytes((3 << 20) - 1) + b"x")
    assert content_of(str(tmp_path), whole=False) != before


def test_of_data_all_bytes_matter(tmp_path: Path) -> None:
    (tmp_path / "part.jsonl").write_bytes(b"a" + bytes(3 << 20))
    before = content_of(str(tmp_path), whole=True)
    (tmp_path / "part.jsonl").write_bytes(b"b" + bytes(3 << 20))
    assert content_of(str(tmp_path), whole=True) != before
