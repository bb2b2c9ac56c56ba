"""Checkpoints and exports that a kill or a bad disk has spoilt are recognized, and never used."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_rules.pipeline.training.checkpoints import choose_checkpoint, seal, trained_checkpoint
from marin_rules.pipeline.training.errors import TrainingError
from marin_rules.pipeline.training.export import check_export, fault_of_export, remove_cut_exports


def checkpoint(folder: Path, step: int) -> Path:
    made = folder / f"step-{step}"
    (made / "d").mkdir(parents=True)
    (made / "d" / "array").write_bytes(b"numbers" * 100)
    (made / "metadata.json").write_text(json.dumps({"step": step}))
    seal(str(made))
    return made


SPOILT: dict[str, Callable[[Path], object]] = {
    "no metadata": lambda path: (path / "metadata.json").unlink(),
    "half of the metadata": lambda path: (path / "metadata.json").write_text('{"st'),
    "metadata of another step": lambda path: (path / "metadata.json").write_text('{"step": 1}'),
    "killed before it was sealed": lambda path: (path / "files.json").unlink(),
    "a file is gone": lambda path: (path / "d" / "array").unlink(),
    "a file is cut": lambda path: (path / "d" / "array").write_bytes(b"numbers"),
    "a bit has flipped": lambda path: (path / "d" / "array").write_bytes(b"Numbers" + b"numbers" * 99),
}


@pytest.mark.parametrize("how", SPOILT)
def test_the_one_before_is_used(tmp_path: Path, how: str) -> None:
    good, bad = checkpoint(tmp_path, 9), checkpoint(tmp_path, 100)
    SPOILT[how](bad)
    said: list[str] = []
    chosen = choose_checkpoint(str(tmp_path), said.append)
    assert chosen is not None
    assert (chosen.path, chosen.step) == (str(good), 9)
    assert len(said) == 1
    assert str(bad) in said[0]
    assert not bad.exists()


def test_the_newest_is_used(tmp_path: Path) -> None:
    for step in (9, 100, 20):
        checkpoint(tmp_path, step)
    chosen = choose_checkpoint(str(tmp_path), pytest.fail)
    assert chosen is not None
    assert chosen.step == 100


def test_none_is_none(tmp_path: Path) -> None:
    assert choose_checkpoint(str(tmp_path / "nothing"), pytest.fail) is None


def test_where_the_weights_of_a_training_are(tmp_path: Path) -> None:
    newest = checkpoint(tmp_path / "checkpoints", 12)
    checkpoint(tmp_path / "checkpoints", 3)
    for path in (tmp_path, tmp_path / "checkpoints", newest):
        assert trained_checkpoint(str(path)) == str(newest)
    with pytest.raises(FileNotFoundError):
        trained_checkpoint(str(tmp_path / "checkpoints" / "nothing"))


def export(folder: Path, step: int) -> Path:
    made = folder / f"step-{step}"
    made.mkdir(parents=True)
    (made / "config.json").write_text("{}")
    (made / "tokenizer.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    (made / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    return made


CUT: dict[str, Callable[[Path], object]] = {
    "no tokenizer": lambda path: (path / "tokenizer.json").unlink(),
    "no weights": lambda path: (path / "model.safetensors").unlink(),
    "half of the weights": lambda path: (path / "model.safetensors").write_bytes(
        (path / "model.safetensors").read_bytes()[:-8]
    ),
    "three bytes": lambda path: (path / "model.safetensors").write_bytes(b"abc"),
    "a shard is missing": lambda path: (path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"w": "model-00001-of-00002.safetensors"}})
    ),
}


@pytest.mark.parametrize("how", CUT)
def test_cut_exports_are_removed(tmp_path: Path, how: str) -> None:
    good, bad = export(tmp_path, 19), export(tmp_path, 9)
    CUT[how](bad)
    with pytest.raises(TrainingError, match="is not whole"):
        check_export(str(bad))
    assert fault_of_export(str(good)) is None
    said: list[str] = []
    assert remove_cut_exports(str(tmp_path), said.append) == ["step-19"]
    assert not bad.exists()
    assert len(said) == 1
