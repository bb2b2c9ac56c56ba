"""What a stage remembers of its work is valid until the step is started over. Running a finished step again, or forcing
a half-finished one, because its input or its code has changed, means doing all of it.

The worker that starts a step over says so in `.executor_again`. Each task forgets its share once for each such note, so
that an attempt after a kill continues where the previous one ended.
"""

from __future__ import annotations

from collections.abc import Iterable

from marin_rules import this_process
from marin_rules.pipeline.core.files import join, read_json, remove_file, remove_folder, write_json

_AGAIN = ".executor_again"
_FORGOTTEN = ".done_before"


def forget_if_done_before(
    output_path: str, remembered: Iterable[str], folders: Iterable[str] = (), *, only_if_finished: bool = False
) -> None:
    """Remove the files and folders that tell this task that its work is done, if the step starts over.

    With `only_if_finished`, a step that was forced half-way keeps what it has made since it was last started over after
    being done.
    """
    again = read_json(join(output_path, _AGAIN))
    id = again.get("after_done" if only_if_finished else "id") if isinstance(again, dict) else None
    if id is None:
        return
    process = this_process()
    note = join(output_path, _FORGOTTEN, f"{process.task}-of-{process.tasks}.json")
    if read_json(note) == id:
        return
    for path in remembered:
        remove_file(path)
    for folder in folders:
        remove_folder(folder)
    write_json(note, id)
