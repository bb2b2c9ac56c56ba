"""What a stage remembers of its work counts until the step is begun anew. Whoever runs a finished step again, or
forces a half-finished one, because its input or its code is another by now, means all of it.

The worker that begins a step anew says so in `.executor_again`. Each task forgets its share once for each such note, so
that an attempt after a kill goes on where the one before it ended.
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
    """Remove the files and folders by which this task would know that its work is done, if the step begins anew.

    With `only_if_finished`, a step that was forced half-way keeps what it has since it was last begun anew after it was
    done.
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
