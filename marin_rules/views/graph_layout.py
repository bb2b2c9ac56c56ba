"""Where the nodes of a graph are drawn: in layers, what a node depends on above it. Pure, and the same every time.

A wide layer is broken into several rows, so that a drawing grows downwards, where a page can be scrolled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NODES_IN_A_ROW = 6


@dataclass(frozen=True, slots=True)
class Place:
    """The cell of a node. `column` may be half a cell off, because rows are centred."""

    row: int
    column: float


def layout(dependencies: Mapping[int, Sequence[int]], *, nodes_in_a_row: int = NODES_IN_A_ROW) -> dict[int, Place]:
    """A place for every node (a key of `dependencies`). Dependencies that are not nodes themselves are ignored."""
    layers: dict[int, list[int]] = {}
    for node, layer in _layers(dependencies).items():
        layers.setdefault(layer, []).append(node)
    places: dict[int, Place] = {}
    row = 0
    for _, nodes in sorted(layers.items()):
        ordered = sorted(nodes)
        rows = -(-len(ordered) // nodes_in_a_row)
        if rows == 1:  # In several rows, left and right mean little, and people look for what comes next.
            ordered.sort(key=lambda node: _above(dependencies[node], places))
        length = -(-len(ordered) // rows)  # Rows of about the same length.
        for first in range(0, len(ordered), length):
            members = ordered[first : first + length]
            offset = (nodes_in_a_row - len(members)) / 2
            places |= {node: Place(row, offset + column) for column, node in enumerate(members)}
            row += 1
    return places


def _layers(dependencies: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """The length of the longest chain above each node; without recursion, because chains may be long.

    Plans have no cycles, but what is drawn may come from a file: a line that closes a cycle is ignored.
    """
    found: dict[int, int] = {}
    begun: set[int] = set()
    for start in sorted(dependencies):
        pending = [start]
        while pending:
            node = pending[-1]
            begun.add(node)
            above = [other for other in dependencies[node] if other in dependencies]
            missing = [other for other in above if other not in begun]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            found.setdefault(node, 1 + max((found[other] for other in above if other in found), default=-1))
    return found


def _above(dependencies: Sequence[int], places: Mapping[int, Place]) -> float:
    """Where, from left to right, the dependencies of a node are on average."""
    columns = [places[node].column for node in dependencies if node in places]
    return sum(columns) / len(columns) if columns else 0.0
