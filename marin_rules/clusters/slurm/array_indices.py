"""The indices of an array's elements as Slurm writes them, `0-63,70`: pure.

Its commands also read and print such texts with a step (`1-9:2`) and with the array's throttle (`%8`) at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

MOST_CHARACTERS = 4000
"""sbatch accepts 4,095 bytes of `--array`, the throttle included, however many elements a site allows."""

_PART = re.compile(r"(?P<first>[0-9]+)(?:-(?P<last>[0-9]+)(?::(?P<step>[1-9][0-9]*))?)?")


def indices_text(indices: Iterable[int]) -> str:
    """Rising numbers, runs of them as ranges."""
    return ",".join(map(_run_text, _runs(indices)))


def parse_indices(text: str) -> list[int]:
    """All of them. Raises `ValueError` for a text that is not one, or was cut."""
    indices: list[int] = []
    for part in text.partition("%")[0].split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"not the indices of an array: {text!r}")
        first, last, step = (None if value is None else int(value) for value in match.group("first", "last", "step"))
        assert first is not None
        indices += range(first, (first if last is None else last) + 1, step or 1)
    return indices


def deal(tasks: Sequence[int], *, most_span: int, most_count: int) -> list[list[int]]:
    """Rising numbers in as few arrays as can be submitted: the indices, which are the numbers less the first of their
    array, are below `most_span`, at most `most_count`, and not too many for one text."""
    arrays: list[list[int]] = []
    length = 0
    for task in tasks:
        array = arrays[-1] if arrays else []
        more = _growth(array, task)
        if array and task - array[0] < most_span and len(array) < most_count and length + more <= MOST_CHARACTERS:
            array.append(task)
            length += more
        else:
            arrays.append([task])
            length = 1
    return arrays


def _growth(array: Sequence[int], task: int) -> int:
    """How many characters longer the text of an array is with one more task."""
    index = task - (array[0] if array else task)
    if array[-2:] == [task - 2, task - 1]:  # The end of a range moves.
        return len(str(index)) - len(str(index - 1))
    return 1 + len(str(index))


def _runs(indices: Iterable[int]) -> list[list[int]]:
    ordered = list(indices)
    starts = [0, *(at + 1 for at, (one, other) in enumerate(pairwise(ordered)) if other != one + 1), len(ordered)]
    return [ordered[start:end] for start, end in pairwise(starts) if start < end]


def _run_text(run: Sequence[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"
