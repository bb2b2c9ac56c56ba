"""What a run is trained from, written down when it begins: whoever resumes it has to have the same.

A path says which steps the data and the first weights come from, not what these steps have made. If they are made again
while a training is stopped half-way, its checkpoints are of data that is no longer there: it starts anew. So does a
finished training that is run again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from marin_rules.pipeline.core.done_before import forget_if_done_before
from marin_rules.pipeline.core.files import (
    join,
    open_to_read,
    read_json,
    remove_file,
    remove_folder,
    sizes_below,
    write_json,
)

type Origin = Mapping[str, Any]

_FILES = ("training.json", "metrics.jsonl")
_FOLDERS = ("hf", "preferences", "tensorboard", "report", "checkpoints")
"""What a run writes. The checkpoints are the last to go, for the note is among them."""

_END = 1 << 20


def begin_or_go_on(output: str, origin: Origin, say: Callable[[str], None]) -> None:
    """Clear away what an earlier run has left, unless it is this one. For the first process alone."""
    note, now = join(output, "checkpoints", "origin.json"), json.loads(json.dumps(origin))
    folders = [join(output, name) for name in _FOLDERS]
    forget_if_done_before(output, [join(output, name) for name in _FILES], folders)
    before = read_json(note)
    if isinstance(before, dict) and (other := _differences(before, now)):
        what = ", ".join(name.replace("_", " ") if name in now else name for name in other)
        say(f"what was trained in {output} is removed, and training begins anew: of what it began with, {what} changed")
        for name in _FILES:
            remove_file(join(output, name))
        for folder in folders:
            if sizes_below(folder):
                remove_folder(folder)
    if before != now:
        write_json(note, now)


def content_of(folder: str, *, whole: bool) -> dict[str, list[int]]:
    """By which one sees that a folder's files are others: sizes and checksums, of all bytes or of each file's last.

    Other weights differ everywhere, so that their end will do.
    """
    found = {}
    for name, size in sorted(sizes_below(folder).items()):
        checksum = 0
        with open_to_read(join(folder, name)) as file:
            if not whole and size > _END:
                file.seek(size - _END)
            while block := file.read(_END):
                checksum = zlib.crc32(block, checksum)
        found[name] = [size, checksum]
    return found


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What both know and is not the same; an older version may have known less."""
    found = []
    for name in before.keys() & now.keys():
        one, other = before[name], now[name]
        if name in ("hyperparameters", "model"):
            found += [field for field in one.keys() & other.keys() if one[field] != other[field]]
        elif one != other:
            found.append(name)
    return sorted(found)
