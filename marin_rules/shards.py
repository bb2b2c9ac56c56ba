"""Files divided among the tasks of a step.

def clean(config: CleanConfig) -> None:
    for file in shards_of_this_task(glob(f"{config.input_path}/*.jsonl")):
        ...
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from marin_rules.process import this_process


def shards_of_this_task[PathT: str | os.PathLike[str]](files: Iterable[PathT]) -> list[PathT]:
    """The files for this task: all files are divided as evenly as possible, each going to exactly one task.

    In a step without tasks, and outside of steps, that is all of them. The files are sorted first, because two machines
    may list the same folder in different orders; give every task the same files.
    """
    process = this_process()
    return sorted(files, key=os.fspath)[process.task :: process.tasks]
