"""Checkpoints and exports that a kill or a bad disk has spoilt are recognized, and never used."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.training.checkpoints import choose_checkpoint, seal, trained_checkpoint
from marin_rules.pipeline.training.config import Hyperparameters
from marin_rules.pipeline.training.errors import TrainingError
from marin_rules.pipeline.training.export import check_export, fault_of_export, remove_cut_exports
from marin_rules.pipeline.training.metrics import Recorder
from marin_rules.pipeline.training.model import LlamaConfig
from marin_rules.pipeline.training.results import conclude
from marin_rules.pipeline.training.run import Devices
from marin_rules.pipeline.training.throughput import Work


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


@pytest.mark.parametrize("to", ["store", "disk"])
def test_one_that_was_copied_from_a_disk_to_a_store_or_back_is_used(tmp_path: Path, to: str) -> None:
    """Only on a disk its files have checksums. A copy that is cut short is recognized all the same."""
    store = f"memory://{tmp_path.name}-{to}/checkpoints"
    memory = fsspec.filesystem("memory")
    checkpoint(tmp_path / "here", 9)
    memory.put(str(tmp_path / "here"), store, recursive=True)
    folder = store
    if to == "disk":
        memory.rm(f"{store}/step-9/files.json")
        seal(f"{store}/step-9")
        memory.get(store, str(tmp_path / "back"), recursive=True)
        folder = str(tmp_path / "back")
    chosen = choose_checkpoint(folder, pytest.fail)
    assert chosen is not None
    assert chosen.path == f"{folder}/step-9"
    fsspec.open(f"{chosen.path}/d/array", "wb").open().close()
    said: list[str] = []
    assert choose_checkpoint(folder, said.append) is None
    assert "d/array is damaged" in said[0]


def test_what_somebody_keeps_beside_them_is_left_alone(tmp_path: Path) -> None:
    checkpoint(tmp_path, 9)
    for name in ("step-40.bak", "step-40 copy", "step-040"):
        checkpoint(tmp_path, 40).rename(tmp_path / name)
    (tmp_path / "latest").symlink_to("step-8")
    before = sorted(tmp_path.rglob("*"))
    chosen = choose_checkpoint(str(tmp_path), pytest.fail)
    assert chosen is not None
    assert chosen.step == 9
    assert sorted(tmp_path.rglob("*")) == before


def test_one_that_was_moved_and_linked_is_used_and_what_is_elsewhere_never_removed(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    checkpoint(here, 9)
    moved = checkpoint(elsewhere, 40)
    (here / "step-40").symlink_to(moved)
    chosen = choose_checkpoint(str(here), pytest.fail)
    assert chosen is not None
    assert chosen.step == 40
    (moved / "d" / "array").write_bytes(b"")
    said: list[str] = []
    chosen = choose_checkpoint(str(here), said.append)
    assert chosen is not None
    assert chosen.step == 9
    assert len(said) == 1
    assert not (here / "step-40").is_symlink()
    assert (moved / "metadata.json").exists()


def test_one_beyond_the_last_step_is_refused_and_left(tmp_path: Path) -> None:
    foreign = checkpoint(tmp_path, 80)
    with pytest.raises(TrainingError, match="step-80 belongs to another training: this one has 80 steps"):
        choose_checkpoint(str(tmp_path), steps=80)
    assert foreign.exists()
    assert choose_checkpoint(str(tmp_path), steps=81) is not None


@pytest.mark.parametrize("name", ["metadata.json", "files.json", "d/array", "more"])
def test_nobody_waits_for_a_named_pipe(tmp_path: Path, name: str) -> None:
    planted = checkpoint(tmp_path, 9) / name
    planted.unlink(missing_ok=True)
    os.mkfifo(planted)
    with pytest.raises(DataError, match=f"step-9/{name} is a named pipe"):
        choose_checkpoint(str(tmp_path))


def test_a_sealed_one_outlives_a_machine_that_goes_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older ones are removed as soon as it is sealed."""
    synced, fsync = set(), os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", noted)
    sealed = checkpoint(tmp_path, 9)
    needed = (sealed / "metadata.json", sealed / "files.json", sealed, tmp_path)
    assert {path.stat().st_ino for path in needed} <= synced


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
    "noise": lambda path: (path / "model.safetensors").write_bytes(b"\xff" * 64),
    "noise that means a header of more than any memory": lambda path: (path / "model.safetensors").write_bytes(
        b"x" * 64
    ),
    "zeros": lambda path: (path / "model.safetensors").write_bytes(bytes(64)),
    "a header of something else": lambda path: (path / "model.safetensors").write_bytes(
        struct.pack("<Q", 9) + b'{"w": {}}'
    ),
    "a list for a header": lambda path: (path / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"[]"),
    "an index of nothing": lambda path: (path / "model.safetensors.index.json").write_text("{}"),
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


def test_links_among_exports_are_left_alone(tmp_path: Path) -> None:
    export(tmp_path / "hf", 19)
    elsewhere = export(tmp_path / "elsewhere", 9)
    (elsewhere / "model.safetensors").unlink()
    (tmp_path / "hf" / "step-9").symlink_to(elsewhere)
    (tmp_path / "hf" / "latest").symlink_to("step-18")
    assert remove_cut_exports(str(tmp_path / "hf"), pytest.fail) == ["step-19"]
    assert (elsewhere / "config.json").exists()
    assert (tmp_path / "hf" / "step-9").is_symlink()


def test_the_evaluation_is_kept_without_its_times_whatever_the_sets_are_called(tmp_path: Path) -> None:
    export(tmp_path / "hf", 1)
    (tmp_path / "tokenizer").mkdir()
    recorder = Recorder(str(tmp_path / "metrics.jsonl"), Work(2, 8, 32), resumed_from=None, say=lambda text: None)
    losses = {"eval/loss": 2.0, "eval/nytimes/loss": 2.5, "eval/timeline/bpb": 1.5}
    for step in (0, 1):
        recorder.trained(step, 3.0, None)
    recorder.reported(1, {**losses, "eval/loading_time": 0.1, "eval/total_time": 0.2})
    given = Hyperparameters(8, 2, 1e-3)
    tokenizer, devices = str(tmp_path / "tokenizer"), Devices("cpu", 1, 1)
    facts = conclude(str(tmp_path), given, LlamaConfig(), 9, tokenizer, recorder, devices, compared={}, more={})
    assert facts["evaluation"] == losses
