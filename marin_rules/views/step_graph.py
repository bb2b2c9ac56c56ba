"""The steps of an experiment as a picture whose boxes lead to the pages of the steps."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marin_rules.views.graph_layout import NODES_IN_A_ROW, Place, layout
from marin_rules.views.markup import Html, status_class, tag

_BOX_WIDTH, _BOX_HEIGHT = 164, 36
_GAP, _ROW_GAP = 10, 34
_MARGIN = 12
_LABEL_LETTERS = 22
_MOST_EDGES = 3000
"""A browser draws more than this, but nobody can follow them, and the page gets large."""

MOST_NODES = 600


@dataclass(frozen=True)
class Node:
    """A step as the picture shows it."""

    name: str
    function: str
    status: str
    page: str | None
    dependencies: Sequence[int]


def step_graph(nodes: Mapping[int, Node]) -> Html:
    """The picture; a sentence in its place where there are too many steps."""
    if len(nodes) > MOST_NODES:
        return tag("p", f"With more than {MOST_NODES} steps there is no picture: the table below lists them all.")
    places = layout({index: node.dependencies for index, node in nodes.items()})
    edges = [(above, below) for below, node in nodes.items() for above in node.dependencies if above in nodes]
    drawn = [_edge(places, above, below) for above, below in edges[:_MOST_EDGES]]
    boxes = [_box(index, node, places[index]) for index, node in nodes.items()]
    width = 2 * _MARGIN + NODES_IN_A_ROW * (_BOX_WIDTH + _GAP) - _GAP
    rows = 1 + max((place.row for place in places.values()), default=0)
    height = 2 * _MARGIN + rows * (_BOX_HEIGHT + _ROW_GAP) - _ROW_GAP
    size: dict[str, str | int] = {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
    picture = tag("div", tag("svg", drawn, boxes, role="img", aria_label="graph of steps", **size), class_="graph")
    left_out = len(edges) - len(drawn)
    return tag("div", picture, tag("p", f"{left_out} of {len(edges)} lines are not drawn.") if left_out else None)


def _corner(place: Place) -> tuple[float, float]:
    x = _MARGIN + place.column * (_BOX_WIDTH + _GAP)
    return x, _MARGIN + place.row * (_BOX_HEIGHT + _ROW_GAP)


def _edge(places: Mapping[int, Place], above: int, below: int) -> Html:
    (from_x, from_y), (to_x, to_y) = _corner(places[above]), _corner(places[below])
    from_x, from_y, to_x = from_x + _BOX_WIDTH / 2, from_y + _BOX_HEIGHT, to_x + _BOX_WIDTH / 2
    bend = (to_y - from_y) / 2
    curve = f"M{from_x:g},{from_y:g} C{from_x:g},{from_y + bend:g} {to_x:g},{to_y - bend:g} {to_x:g},{to_y:g}"
    return tag("path", d=curve, data_from=above, data_to=below)


def _box(index: int, node: Node, place: Place) -> Html:
    x, y = _corner(place)
    return tag(
        "a",
        tag("title", f"{node.name}\n{node.function}\n{node.status}"),
        tag("rect", x=f"{x:g}", y=f"{y:g}", width=_BOX_WIDTH, height=_BOX_HEIGHT, rx=6),
        tag("text", shortened(node.name), x=f"{x + 8:g}", y=f"{y + 15:g}"),
        tag("text", shortened(node.function, 27), x=f"{x + 8:g}", y=f"{y + 29:g}", class_="function"),
        class_=status_class(node.status),
        href="#",
        data_page=node.page,
        data_node=index,
    )


def shortened(name: str, letters: int = _LABEL_LETTERS) -> str:
    """A name that fits a box: its end tells steps apart best. East Asian letters are twice as wide."""
    room = letters
    for position in range(len(name) - 1, -1, -1):
        room -= 2 if unicodedata.east_asian_width(name[position]) in "WF" else 1
        if room < 0 or (room == 0 and position > 0):
            return "…" + name[position + 1 :]
    return name
