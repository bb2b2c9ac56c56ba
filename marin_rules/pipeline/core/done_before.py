"""What a stage remembers of its work counts until the step is done. Whoever runs a finished step again, because its
input or its code is another by now, means all of it.

A step's `.artifact.json` is written when the step is done. So if it is there while the step runs, the step was done
before, and each task forgets its share once: it notes which success it has forgotten, so that an attempt after a kill
goes on where the one before it ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from marin_rules import this_process
from marin_rules.pipeline.core.files import is_url, join, read_json, remove_file, remove_folder, sizes_below, write_json

_ARTIFACT = ".artifact.json"
_FORGOTTEN = ".done_before"


def forget_if_done_before(output_path: str, remembered: Iterable[str], folders: Iterable[str] = ()) -> None:
    """Remove the files and folders by which this task would know that its work is done, if the step has been done as a
    whole."""
    success = _version_of(join(output_path, _ARTIFACT))
    if success is None:
        return
    process = this_process()
    note = join(output_path, _FORGOTTEN, f"{process.task}-of-{process.tasks}.json")
    if read_json(note) == success:
        return
    for path in remembered:
        remove_file(path)
    for folder in folders:
        if sizes_below(folder):
            remove_folder(folder)
    write_json(note, success)


def _version_of(path: str) -> Any:
    """Something that changes whenever the file is written; None if there is no such file."""
    try:
        if not is_url(path):
            return os.stat(path).st_mtime_ns
        import fsspec

        filesystem, place = fsspec.core.url_to_fs(path)
        return filesystem.ukey(place)
    except FileNotFoundError:
        return None
