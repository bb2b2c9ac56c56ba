"""Which model a path means: the output of a training step, a Hugging Face folder, or a Levanter checkpoint.

    <train output>/hf/step-N/             a Hugging Face folder: config.json, *.safetensors, tokenizer.json
    <train output>/checkpoints/step-N/    a Levanter checkpoint: metadata.json and arrays

A Levanter checkpoint has neither its configuration nor a tokenizer. They are read from a Hugging Face folder: the one
that is named, or any export of the same training.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, is_url, join, open_to_read, read_json, sizes_below
from marin_rules.pipeline.core.tokenizer_files import copy_tokenizer, refuse_code

_STEP = re.compile(r"(?:(?P<folder>.*)/)?step-(?P<step>\d+)/(?P<file>[^/]+)")

_LAYER = re.compile(r"model/transformer/layers/blocks/(\d+)/")


@dataclass(frozen=True)
class ModelFiles:
    """A model that can be loaded."""

    kind: Literal["hugging_face", "levanter"]
    path: str
    reference_path: str
    """A Hugging Face folder with `config.json` and the tokenizer. For such a folder, itself."""

    step: int | None
    hugging_face_config: Mapping[str, Any]
    tokenizer_sha256: str


def find_model(path: str, step: int | None = None, reference_path: str | None = None) -> ModelFiles:
    """Look at what there is below a path; of several steps the last, unless `step` says which."""
    files = sizes_below(path)
    if not files:
        raise DataError(f"no model at {path}: the folder is empty or does not exist. Has the training step succeeded?")
    if "config.json" in files:
        return _hugging_face(path, _step_of_folder(path), step)
    if "metadata.json" in files:
        return _levanter(path, _step_of_folder(path), step, reference_path)
    exports, checkpoints = (_steps(files, folder, file) for folder, file in _MARKS)
    if not exports and not checkpoints:
        raise DataError(
            f"no model at {path}: neither a Hugging Face folder (config.json), nor a Levanter checkpoint"
            " (metadata.json), nor a training output (hf/step-N, checkpoints/step-N)"
        )
    wanted = max({*exports, *checkpoints}) if step is None else step
    if wanted in exports:
        return _hugging_face(join(path, "hf", f"step-{wanted}"), wanted, step)
    if wanted in checkpoints:
        reference = reference_path or (join(path, "hf", f"step-{max(exports)}") if exports else None)
        return _levanter(join(path, "checkpoints", f"step-{wanted}"), wanted, step, reference)
    there = ", ".join(map(str, sorted({*exports, *checkpoints})))
    raise DataError(f"{path} has no step {wanted}: there are {there}")


_MARKS = (("hf", "config.json"), ("checkpoints", "metadata.json"))
"""Where the steps of a training are, and the file without which one is not whole."""


def _steps(files: Mapping[str, int], folder: str, file: str) -> list[int]:
    matches = [_STEP.fullmatch(name) for name in files]
    return [int(one["step"]) for one in matches if one and one["folder"] == folder and one["file"] == file]


def _hugging_face(path: str, found: int | None, wanted: int | None) -> ModelFiles:
    _check_step(path, found, wanted)
    if not any(name.endswith(".safetensors") for name in sizes_below(path)):
        raise DataError(f"{path} has a config.json but no *.safetensors: is the export complete?")
    config, tokenizer = _reference(path)
    return ModelFiles("hugging_face", path, path, found, config, tokenizer)


def _levanter(path: str, found: int | None, wanted: int | None, reference: str | None) -> ModelFiles:
    _check_step(path, found, wanted)
    if reference is None:
        above = path.rstrip("/").rpartition("/")[0].rpartition("/")[0]
        exports = _steps(sizes_below(above), *_MARKS[0]) if above else []
        if not exports:
            raise DataError(
                f"{path} is a Levanter checkpoint, which does not say what model it is of: give a Hugging Face folder"
                " with config.json and tokenizer.json of the same model as reference_path"
            )
        reference = join(above, "hf", f"step-{max(exports)}")
    config, tokenizer = _reference(reference)
    return ModelFiles("levanter", path, reference, found, config, tokenizer)


def _reference(path: str) -> tuple[Mapping[str, Any], str]:
    config = read_json(join(path, "config.json"))
    if not isinstance(config, dict) or "model_type" not in config:
        raise DataError(f"{join(path, 'config.json')} is missing or names no model_type: is it a Hugging Face folder?")
    refuse_code(path)
    return config, tokenizer_digest(path)


@contextlib.contextmanager
def settings_here(files: ModelFiles) -> Iterator[str]:
    """The folder with configuration and tokenizer, on this machine: transformers reads no URLs."""
    if not is_url(files.reference_path):
        yield files.reference_path
        return
    with tempfile.TemporaryDirectory(prefix="model-settings-") as folder:
        copy_tokenizer(files.reference_path, folder)
        with (
            open_to_read(join(files.reference_path, "config.json")) as given,
            into_place(join(folder, "config.json")) as file,
        ):
            file.write(given.read())
        yield folder


def tokenizer_digest(path: str) -> str:
    """Of what decides how text becomes tokens, whoever saved it: libraries add settings when they save a tokenizer."""
    tokenizer = read_json(join(path, "tokenizer.json"))
    if not isinstance(tokenizer, dict) or not isinstance(tokenizer.get("model"), dict):
        raise DataError(f"{path} has no tokenizer.json that can be read: save the tokenizer in the model's folder")
    model = dict(tokenizer["model"])
    model["merges"] = [one if isinstance(one, str) else " ".join(one) for one in model.get("merges") or []]
    parts = [model, *(tokenizer.get(part) for part in ("added_tokens", "normalizer", "pre_tokenizer"))]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def layers_by_themselves(checkpoint: str) -> int | None:
    """How many layers a Levanter checkpoint has, if each has arrays of its own (a training with scan_layers=False);
    None if all are in one, or if there is no list of arrays."""
    manifest = read_json(join(checkpoint, "manifest.json"))
    arrays = manifest.get("arrays") if isinstance(manifest, dict) else None
    matches = [_LAYER.match(str(array.get("path"))) for array in arrays or () if isinstance(array, dict)]
    return len({match[1] for match in matches if match}) or None


def _step_of_folder(path: str) -> int | None:
    match = re.fullmatch(r"step-(\d+)", path.rstrip("/").rpartition("/")[2])
    return int(match[1]) if match else None


def _check_step(path: str, found: int | None, wanted: int | None) -> None:
    if wanted is not None and found != wanted:
        raise DataError(f"step {wanted} is asked for, but {path} is another: name the training output, or no step")
