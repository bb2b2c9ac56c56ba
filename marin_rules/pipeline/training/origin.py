"""What a run is trained from, recorded when it begins: a resumed run must have the same.

A path says which steps the data and the first weights come from, not what these steps have made. If they are made
again while a training is stopped half-way, its checkpoints are of data that is no longer there. Such a training is
refused and left as it is: it may have taken weeks, and only people know what it is worth. A finished training that is
run again, which is an explicit request, starts over.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from marin_rules.pipeline.core.done_before import forget_if_done_before
from marin_rules.pipeline.core.files import join, open_to_read, read_json, sizes_below, write_json
from marin_rules.pipeline.training.errors import TrainingError

type Origin = Mapping[str, Any]

_FILES = ("training.json", "metrics.jsonl")
_FOLDERS = ("hf", "preferences", "tensorboard", "report", "checkpoints")
"""What a run writes. The checkpoints are removed last, because the note is among them."""

_NOT_OF_A_MODEL = (".md", ".txt", ".lock", ".metadata", "generation_config.json")
"""Files beside the weights that may change without anybody's training being another."""

_END = 1 << 20


def begin_or_go_on(output: str, origin: Origin) -> None:
    """Remove a finished run, and refuse one that began with something else. Only for the first process."""
    note, now = join(output, "checkpoints", "origin.json"), json.loads(json.dumps(origin))
    folders = [join(output, name) for name in _FOLDERS]
    forget_if_done_before(output, [join(output, name) for name in _FILES], folders, only_if_finished=True)
    before = read_json(note)
    if isinstance(before, dict) and (other := _differences(before, now)):
        raise TrainingError(
            f"{output} holds a training that began with something else: {', '.join(other)} changed since then. To"
            " train from scratch, delete that folder first (`marin-rules delete STEP`; in a bucket, with its own"
            " tools); to continue the old training, restore what it began with"
        )
    if before != now:
        write_json(note, now)


def content_of(folder: str, *, whole: bool) -> dict[str, list[int]]:
    """What shows that a folder's files have changed: sizes and checksums of all bytes.

    Of a model (not `whole`), only what it is computed with counts, and of each file only its end: other weights differ
    everywhere.
    """
    found = {}
    for name, size in sorted(sizes_below(folder).items()):
        if not whole and name.endswith(_NOT_OF_A_MODEL):
            continue
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
        if name in ("hyperparameters", "model") and isinstance(one, dict):
            found += [field for field in one.keys() & other.keys() if one[field] != other[field]]
        elif one != other:
            found.append(name.replace("_", " "))
    return sorted(found)
