"""Token sequences laid side by side into rows of one length: what a model sees at once.

A row holds several sequences. Each has a segment number of its own, which attention does not cross, and positions of
its own. So a sequence gets the same probabilities as alone, and little of a batch is padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy

    type Array = numpy.ndarray[Any, Any]

PADDING_SEGMENT = -1
_SHORTEST_ROW = 16
_OPEN_ROWS = 64
"""Rows that are considered for a place: enough to fill them well, few enough to stay linear."""


class Scored(NamedTuple):
    """A sequence of tokens of which the last are scored, each given all before it."""

    context: Sequence[int]
    """At least one."""

    continuation: Sequence[int]


@dataclass(frozen=True)
class Place:
    """The place of a sequence."""

    sequence: int
    row: int
    start: int


@dataclass(frozen=True)
class Rows:
    """Arrays of shape (rows, length). What stands at a place is the input, and beside it the token that follows."""

    tokens: Array
    targets: Array
    segments: Array
    positions: Array
    places: list[Place]


def row_length(sequences: Sequence[Scored], longest: int) -> int:
    """A power of two that fits every sequence, or the longest that the model takes: few lengths, few compilations."""
    needed = max(len(one.context) + len(one.continuation) - 1 for one in sequences)
    length = _SHORTEST_ROW
    while length < needed:
        length *= 2
    return min(length, longest)


def pack(sequences: Sequence[Scored], length: int) -> Rows:
    """Longest first, each into the first row with room for it."""
    import numpy

    sizes = [len(one.context) + len(one.continuation) - 1 for one in sequences]
    order = sorted(range(len(sequences)), key=lambda number: (-sizes[number], number))
    used: list[int] = []
    open_rows: list[int] = []
    places: list[Place] = []
    for number in order:
        size = sizes[number]
        if size > length:
            raise ValueError(f"sequence {number} has {size} tokens, a row {length}")
        row = next((row for row in open_rows if used[row] + size <= length), None)
        if row is None:
            row = len(used)
            used.append(0)
            open_rows.append(row)
            del open_rows[:-_OPEN_ROWS]
        places.append(Place(number, row, used[row]))
        used[row] += size
    shape = (len(used), length)
    tokens, targets, positions = (numpy.zeros(shape, numpy.int32) for _ in range(3))
    segments = numpy.full(shape, PADDING_SEGMENT, numpy.int32)
    for place in places:
        one = sequences[place.sequence]
        whole = [*one.context, *one.continuation]
        span = slice(place.start, place.start + len(whole) - 1)
        tokens[place.row, span] = whole[:-1]
        targets[place.row, span] = whole[1:]
        segments[place.row, span] = place.start
        positions[place.row, span] = range(len(whole) - 1)
    return Rows(tokens, targets, segments, positions, places)


def windows(tokens: Sequence[int], first: int, longest: int, overlap: int = 0) -> list[Scored]:
    """A text of any length as sequences of at most `longest` inputs in which every token is scored exactly once.

    The first is given `first` alone. Each further window sees the last token of the one before, and `overlap` more.
    """
    if not 0 <= overlap < longest:
        raise ValueError(f"an overlap of {overlap} leaves nothing to score in windows of {longest} tokens")
    found = [Scored([first], tokens[:longest])] if tokens else []
    done = min(longest, len(tokens))
    while done < len(tokens):
        take = min(longest - overlap, len(tokens) - done)
        found.append(Scored(tokens[max(0, done - 1 - overlap) : done], tokens[done : done + take]))
        done += take
    return found
