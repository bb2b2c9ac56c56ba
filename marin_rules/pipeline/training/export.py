"""Exports for Hugging Face: `hf/step-N`, each a folder that stands alone, with weights, config and tokenizer."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable

from marin_rules.pipeline.core.files import folders_in, join, open_to_read, read_json, remove_folder, sizes_below
from marin_rules.pipeline.training.errors import TrainingError

_STEP = re.compile(r"step-\d+")


def fault_of_export(folder: str) -> str | None:
    """What a folder lacks to be a whole model; None if nothing."""
    sizes = sizes_below(folder)
    for name in ("config.json", "tokenizer.json"):
        if not isinstance(read_json(join(folder, name)), dict):
            return f"no readable {name}"
    weights = [name for name in sizes if name.endswith(".safetensors")]
    index = read_json(join(folder, "model.safetensors.index.json"))
    wanted = {"model.safetensors"}
    if isinstance(index, dict):
        try:
            wanted = {str(name) for name in index["weight_map"].values()}
        except (KeyError, AttributeError):
            return "no readable model.safetensors.index.json"
    if missing := sorted(wanted - set(weights)):
        return f"no {missing[0]}"
    for name in sorted(wanted):
        if _size_of_tensors(join(folder, name), sizes[name]) != sizes[name]:
            return f"{name} is cut short"
    return None


def check_export(folder: str) -> None:
    """Refuse to call a run finished whose model cannot be loaded."""
    if fault := fault_of_export(folder):
        raise TrainingError(f"the export {folder} is not whole: {fault}. Run the step again: it resumes at its end")


def remove_cut_exports(folder: str, say: Callable[[str], None] = print) -> list[str]:
    """Exports that a kill has cut short, and that the resumed run did not redo. Returns the whole ones.

    Links are not exports: their targets are neither read nor written.
    """
    names = [name for name in folders_in(folder, links=False) if _STEP.fullmatch(name)]
    whole = []
    for name in sorted(names, key=lambda name: int(name[5:])):
        if fault := fault_of_export(join(folder, name)):
            say(f"export {join(folder, name)} was cut short ({fault}): it is removed")
            remove_folder(join(folder, name))
        else:
            whole.append(name)
    return whole


def _size_of_tensors(path: str, size: int) -> int | None:
    """How long a safetensors file must be by its own account: a length, a header of JSON, and the numbers. None if it
    gives none that can be true of a file of that size."""
    with open_to_read(path) as file:
        start = file.read(8)
        if len(start) < 8:
            return None
        (length,) = struct.unpack("<Q", start)
        if length > size:
            return None
        try:
            header = json.loads(file.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
            return 8 + int(length) + int(max(ends, default=0))
        except (ValueError, AttributeError, KeyError, IndexError, TypeError):
            return None
