"""The steps of an experiment as a picture whose boxes lead to the pages of the steps."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marin_rules.views.graph_layout import Place, layout

_BOX_WIDTH, _BOX_HEIGHT = 164, 36
_GAP, _ROW_GAP = 10, 34
_MARGIN = 12
_LABEL_LETTERS, _FUNCTION_LETTERS = 20, 27
_LEAST_OF_A_PART = 4
"""Fewer letters of a part of a name, between slashes, say nothing."""

_MOST_EDGES = 3000
"""A browser can draw more than this, but nobody could follow them, and the page would get large."""

MOST_NODES = 600


@dataclass(frozen=True)
class Node:
    """A step as the picture shows it."""

    name: str
    function: str
    status: str
    page: str | None
    dependencies: Sequence[int]


@dataclass(frozen=True)
class Line:
    """From a step to one that depends on it."""

    above: int
    below: int
    curve: str
    """A path, as SVG writes it."""


@dataclass(frozen=True)
class Box:
    """A step at its place; its labels are cut to fit."""

    index: int
    node: Node
    x: float
    y: float
    name: str
    function: str


@dataclass(frozen=True)
class Drawing:
    """What `templates/graph.html` draws, in pixels."""

    width: int
    height: int
    lines: Sequence[Line]
    boxes: Sequence[Box]
    left_out: int
    """Lines that are not drawn."""

    box_width: int = _BOX_WIDTH
    box_height: int = _BOX_HEIGHT


def step_graph(nodes: Mapping[int, Node]) -> Drawing | None:
    """The picture; None if there are too many steps for one."""
    if len(nodes) > MOST_NODES:
        return None
    places = _moved_left(layout({index: node.dependencies for index, node in nodes.items()}))
    edges = [(above, below) for below, node in nodes.items() for above in node.dependencies if above in nodes]
    rows = 1 + max((place.row for place in places.values()), default=0)
    columns = 1 + max((place.column for place in places.values()), default=0)
    return Drawing(
        width=2 * _MARGIN + round(columns * (_BOX_WIDTH + _GAP)) - _GAP,
        height=2 * _MARGIN + rows * (_BOX_HEIGHT + _ROW_GAP) - _ROW_GAP,
        lines=[Line(above, below, _curve(places[above], places[below])) for above, below in edges[:_MOST_EDGES]],
        boxes=[_box(index, node, places[index]) for index, node in nodes.items()],
        left_out=max(0, len(edges) - _MOST_EDGES),
    )


def _moved_left(places: Mapping[int, Place]) -> dict[int, Place]:
    """Without the columns on the left that no row needs: in a narrow window they would fill the view."""
    first = min((place.column for place in places.values()), default=0)
    return {index: Place(place.row, place.column - first) for index, place in places.items()}


def _corner(place: Place) -> tuple[float, float]:
    x = _MARGIN + place.column * (_BOX_WIDTH + _GAP)
    return x, _MARGIN + place.row * (_BOX_HEIGHT + _ROW_GAP)


def _curve(above: Place, below: Place) -> str:
    (from_x, from_y), (to_x, to_y) = _corner(above), _corner(below)
    from_x, from_y, to_x = from_x + _BOX_WIDTH / 2, from_y + _BOX_HEIGHT, to_x + _BOX_WIDTH / 2
    bend = (to_y - from_y) / 2
    return f"M{from_x:g},{from_y:g} C{from_x:g},{from_y + bend:g} {to_x:g},{to_y - bend:g} {to_x:g},{to_y:g}"


def _box(index: int, node: Node, place: Place) -> Box:
    return Box(index, node, *_corner(place), shortened(node.name), shortened(node.function, _FUNCTION_LETTERS))


def shortened(name: str, letters: int = _LABEL_LETTERS) -> str:
    """A name that fits a box: its end distinguishes steps best. East Asian letters are twice as wide."""
    room = letters
    for position in range(len(name) - 1, -1, -1):
        room -= 2 if unicodedata.east_asian_width(name[position]) in "WF" else 1
        if room < 0 or (room == 0 and position > 0):
            rest = name[position + 1 :]
            first, slash, others = rest.partition("/")
            return f"…/{others}" if slash and len(first) < _LEAST_OF_A_PART else f"…{rest}"
    return name
