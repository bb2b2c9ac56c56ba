"""Which checkpoint a run may resume from: the newest whose files are all there, as they were written.

Levanter marks a checkpoint as complete with `metadata.json`. We add `files.json` behind it: the sizes of all files, and
checksums of local ones (object stores check their own). A checkpoint without either, or with other files than it
should have, was cut short or damaged, and is removed; an older one is removed only after the newer one has both.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from marin_rules.pipeline.core.files import (
    folders_in,
    is_url,
    join,
    open_to_read,
    read_json,
    remove_folder,
    sizes_below,
    sync,
    write_json,
)
from marin_rules.pipeline.training.errors import TrainingError

LISTING = "files.json"
METADATA = "metadata.json"
_NAME = re.compile(r"step-(0|[1-9][0-9]*)")
_BLOCK = 1 << 20
_READERS = 8
"""Files that are read at a time: one by one, a large checkpoint on a network's file system takes longer to look through
than to write."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder `step-N`, written after step N (counted from 0)."""

    path: str
    step: int


def seal(folder: str) -> int:
    """Write down what the checkpoint consists of; gives its size in bytes.

    Levanter has the arrays on the disk by now, but not `metadata.json`. Older checkpoints are removed next: a machine
    that goes down after that must not leave one that looks cut short and no other.
    """
    files = {name: facts for name, facts in _facts(folder).items() if name != LISTING}
    write_json(join(folder, LISTING), files)
    for path in (join(folder, METADATA), join(folder, LISTING), folder, os.path.dirname(folder) or "."):
        sync(path)
    return sum(facts["bytes"] for facts in files.values())


def fault_of(checkpoint: Checkpoint) -> str | None:
    """What is wrong with it; None if nothing is."""
    metadata = read_json(join(checkpoint.path, METADATA))
    if not isinstance(metadata, dict):
        return f"it was cut short ({METADATA} is missing or damaged)"
    if metadata.get("step") != checkpoint.step:
        return f"it says that it is of step {metadata.get('step')}"
    if not isinstance(read_json(join(checkpoint.path, LISTING)), dict):
        return f"it was cut short ({LISTING} is missing or damaged)"
    return damage_of(checkpoint.path)


def damage_of(folder: str) -> str | None:
    """Which file of a checkpoint is not as it was written. For one without a list of its files that cannot be told."""
    listed = read_json(join(folder, LISTING))
    if not isinstance(listed, dict):
        return None
    found = _facts(folder)
    for name, facts in listed.items():
        if name not in found:
            return f"{name} is missing"
        # Of a checkpoint that was copied from a disk to a store, or back, only one of them has checksums.
        if any(found[name].get(fact, value) != value for fact, value in facts.items()):
            return f"{name} is damaged"
    return None


def find_checkpoints(folder: str) -> list[Checkpoint]:
    """All of them, the newest first; whole or not. Folders of other names, `step-40.bak`, are somebody's own."""
    steps = [int(match[1]) for name in folders_in(folder) if (match := _NAME.fullmatch(name))]
    return [Checkpoint(join(folder, f"step-{step}"), step) for step in sorted(steps, reverse=True)]


def choose_checkpoint(
    folder: str, say: Callable[[str], None] = print, *, steps: int | None = None
) -> Checkpoint | None:
    """The newest whole checkpoint. Those that are not are reported and removed, so that nobody resumes from them.

    One that a training of this many steps cannot have written is refused: it may be worth something to somebody.
    """
    for checkpoint in find_checkpoints(folder):
        fault = fault_of(checkpoint)
        if fault is None:
            if steps is not None and checkpoint.step >= steps:
                raise TrainingError(
                    f"the checkpoint {checkpoint.path} belongs to another training: this one has {steps} steps: move it"
                    " away, and run the step again"
                )
            return checkpoint
        say(f"checkpoint {checkpoint.path} cannot be used: {fault}. It is removed, and the one before it is tried.")
        remove_folder(checkpoint.path)
    return None


def trained_checkpoint(path: str) -> str:
    """The newest checkpoint of a training step's output, of its `checkpoints` folder, or `path` itself if it is one."""
    if read_json(join(path, METADATA)) is not None:
        return path
    for folder in (join(path, "checkpoints"), path):
        for checkpoint in find_checkpoints(folder):
            if isinstance(read_json(join(checkpoint.path, METADATA)), dict):
                return checkpoint.path
    raise FileNotFoundError(path)


def _facts(folder: str) -> dict[str, Any]:
    sizes = sizes_below(folder)
    if is_url(folder):
        return {name: {"bytes": size} for name, size in sizes.items()}
    with ThreadPoolExecutor(_READERS) as readers:
        checksums = readers.map(lambda name: _checksum(join(folder, name)), sizes)
        return {
            name: {"bytes": size, "crc32": checksum}
            for (name, size), checksum in zip(sizes.items(), checksums, strict=True)
        }


def _checksum(path: str) -> int:
    checksum = 0
    with open_to_read(path) as file:
        while block := file.read(_BLOCK):
            checksum = zlib.crc32(block, checksum)
    return checksum
